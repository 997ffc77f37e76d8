"""The files of a request, read beside the loop and for so long only."""

import asyncio
import logging
from time import monotonic

from gateway import documents
from gateway.ledger import Ledger
from gateway.request import Request

_SECONDS = 10.0  # for all files of a request
_PATIENCE = 1.2  # that many times it for a page that takes no notice

logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it tells what it finds wrong in a client's file


async def read(request: Request, ledger: Ledger, seconds: float = _SECONDS) -> Request:
    """The request with the text of its files instead of them; raises BadRequest for one that is none."""
    if not documents.has_files(request):
        return request
    until = monotonic() + seconds
    try:
        async with asyncio.timeout(seconds * _PATIENCE):
            said, outcomes = await asyncio.to_thread(documents.read, request, lambda: monotonic() > until)
    except TimeoutError:
        said, outcomes = documents.read(request, lambda: True)
    for outcome in sorted(outcomes):
        ledger.note(outcome, "file")
    return said
