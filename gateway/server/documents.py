"""The files of a request: fetched if it only names them, and read beside the loop and for so long only."""

import asyncio
from collections.abc import Mapping

from gateway import config, documents
from gateway.errors import BadRequest
from gateway.ledger import Warnings
from gateway.request import Request
from gateway.server.fetching import FetchedContent, Fetcher, FetchKind
from gateway.server.pdfs import Pdfs

FILE = FetchKind("file", accept="*/*", too_large="file_too_large")

_SECONDS = 10.0  # for all files of a request


async def inline_request_files(
    request: Request,
    settings: config.FetchSettings,
    ledger: Warnings,
    pdfs: Pdfs,
    tenant: str = "",
    seconds: float = _SECONDS,
) -> Request:
    """Return the request with the text of its files instead of them; raise BadRequest for an invalid file."""
    if not documents.has_files(request):
        return request
    whole = await _fetched(request, settings, ledger)
    found = await asyncio.to_thread(documents.pdfs, whole)
    texts = await asyncio.gather(*(pdfs.text(data, tenant, seconds) for data in found))
    told = dict(zip(found, texts, strict=True))
    said, outcomes = await asyncio.to_thread(documents.files_to_text, whole, told.__getitem__)
    for outcome in sorted(outcomes):
        ledger.note(outcome, "file")
    return said


async def _fetched(request: Request, settings: config.FetchSettings, ledger: Warnings) -> Request:
    """The request with the files themselves."""
    if not (wanted := documents.file_urls(request)):
        return request
    if not settings.fetch:
        message = (
            "Files are not fetched here: send the file itself, as 'file_data', or have 'files.fetch' set to true in "
            "the configuration of the gateway."
        )
        raise BadRequest(message, code="unsupported_value", param=next(iter(wanted.values())))
    fetched = await Fetcher(settings, FILE).all(wanted)
    ledger.note("translated", "file_url")
    return await asyncio.to_thread(_inlined, request, fetched)


def _inlined(request: Request, fetched: Mapping[str, FetchedContent]) -> Request:
    return documents.inline_files(
        request, {url: documents.data_uri(one.type, one.data) for url, one in fetched.items()}
    )
