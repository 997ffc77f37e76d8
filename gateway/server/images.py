"""Images that a request names by their URLs, fetched for servers that do not do that themselves."""

from gateway import config, images
from gateway.backends import Kind
from gateway.errors import BadRequest
from gateway.ledger import Warnings
from gateway.request import Request
from gateway.server.fetching import Fetcher, FetchKind

IMAGE = FetchKind("image", accept="image/*", too_large="image_file_too_large")


async def inline_request_images(
    request: Request, kind: Kind, settings: config.FetchSettings, ledger: Warnings
) -> Request:
    """The request as a server of this kind can see all of its images; raises BadRequest for one that it could not."""
    if kind.fetches or not (wanted := images.image_urls(request)):
        return request
    if not settings.fetch:
        message = (
            "The server of this model cannot fetch images: send the image itself, as a data URL, or have "
            "'images.fetch' set to true in the configuration of the gateway."
        )
        raise BadRequest(message, code="unsupported_value", param=next(iter(wanted.values())))
    fetched = {url: one.data for url, one in (await Fetcher(settings, IMAGE).all(wanted)).items()}
    for url, data in fetched.items():
        if not images.image_type(data):
            message = f"Invalid '{wanted[url]}': expected an image of the type PNG, JPEG, GIF or WebP."
            raise BadRequest(message, code="unsupported_image_media_type", param=wanted[url])
    ledger.note("translated", "image_url")
    return images.inline_images(request, fetched)
