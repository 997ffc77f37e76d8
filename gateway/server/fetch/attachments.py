"""Fetch the files and images that a request names by URL, and read them beside the event loop, for a bounded time."""

import asyncio

from gateway import config
from gateway.backends.data_urls import image_type
from gateway.errors import BadRequest
from gateway.request import Request
from gateway.server.fetch.fetcher import Fetcher, FetchKind
from gateway.server.fetch.pdf_reader import Pdfs
from gateway.server.http.memory import Room
from gateway.server.worker_thread import run_in_thread
from gateway.transforms import attachments
from gateway.transforms.stored_files import file_references, missing_file
from gateway.warnings import Warnings

FILE = FetchKind("file", accept="*/*", too_large="file_too_large")

_SECONDS = 10.0  # for all files of a request
IMAGE = FetchKind("image", accept="image/*", too_large="image_file_too_large")


async def inline_request_files(  # noqa: PLR0913 - the services that a file may need
    request: Request,
    settings: config.FetchSettings,
    ledger: Warnings,
    pdfs: Pdfs,
    tenant: str = "",
    room: Room | None = None,
    *,
    seconds: float = _SECONDS,
) -> Request:
    """Return the request with the text of its files instead of them.

    Raise BadRequest for an invalid file, and NotFound for a part that still names a stored file.

    room: counts the memory of fetched files.
    """
    if not attachments.has_files(request):
        return request
    if missing := file_references(request):
        raise missing_file(missing[0])
    whole = await _fetched(request, settings, ledger, room)
    found = await run_in_thread(attachments.pdfs, whole)
    texts = await asyncio.gather(*(pdfs.text(data, tenant, seconds) for data in found))
    body = dict(zip(found, texts, strict=True))
    inlined, outcomes = await run_in_thread(attachments.files_to_text, whole, body.__getitem__)
    for outcome in sorted(outcomes):
        ledger.add(outcome, "file")
    return inlined


async def _fetched(request: Request, settings: config.FetchSettings, ledger: Warnings, room: Room | None) -> Request:
    """Return the request with the content of its files instead of their URLs."""
    if not (wanted := attachments.file_urls(request)):
        return request
    if not settings.fetch:
        message = (
            "The gateway does not fetch files. Send the file itself as 'file_data', or ask the operator to set "
            "'files.fetch: true' in the gateway's configuration."
        )
        raise BadRequest(message, code="unsupported_value", param=next(iter(wanted.values())))
    fetched = await Fetcher(settings, FILE, room=room).all(wanted)
    ledger.add("translated", "file_url")
    return attachments.inline_files(request, {url: (one.type, one.data) for url, one in fetched.items()})


async def inline_request_images(
    request: Request, settings: config.FetchSettings, ledger: Warnings, room: Room | None = None
) -> Request:
    """Return the request with the content of its images instead of URLs, for a backend that does not fetch them.

    Raises BadRequest if the gateway may not fetch images, or for an image that cannot be used.

    room: counts the memory of fetched images.
    """
    if request.past and request.past.has_image_urls:
        request = request.with_whole_past()
    find = attachments.image_urls
    wanted = await run_in_thread(find, request) if request.large else find(request)
    if not wanted:
        return request
    if not settings.fetch:
        message = (
            "This model's backend does not fetch images. Send the image itself as a data URL, or ask the operator "
            "to set 'images.fetch: true' in the gateway's configuration."
        )
        raise BadRequest(message, code="unsupported_value", param=next(iter(wanted.values())))
    fetched = {url: one.data for url, one in (await Fetcher(settings, IMAGE, room=room).all(wanted)).items()}
    for url, data in fetched.items():
        if not image_type(data):
            message = f"Invalid '{wanted[url]}': expected a PNG, JPEG, GIF or WebP image."
            raise BadRequest(message, code="unsupported_image_media_type", param=wanted[url])
    ledger.add("translated", "image_url")
    return await run_in_thread(attachments.inline_images, request, fetched)
