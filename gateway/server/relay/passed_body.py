"""Hold a request that is passed on: the model's name, and the request for each backend."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol
from urllib.parse import parse_qsl, urlencode

from msgspec import Raw, json
from starlette.requests import Request as HttpRequest

from gateway.api.body import Counts, decode_body
from gateway.api.named_models import models_in_fields
from gateway.api.validation import missing_parameter, object_of, string
from gateway.backends.kind_row import KindEndpoint
from gateway.backends.openai.usage import estimate_tokens_from_characters
from gateway.server.http.request_reader import get_header
from gateway.server.http.upload import ClientUpload
from gateway.server.upstream.passed_call import PassedRequest

_JSON = {"content-type": "application/json"}
# The tokens that are reserved where the request says nothing about them: an exhausted limit refuses the request.  The
# usage in the response is counted later.
_UNKNOWN = 1
_check = object_of({"model": string})


class PassedBody(Protocol):
    """A request whose model can be replaced."""

    @property
    def model(self) -> str:
        """The model as the client names it."""

    @property
    def other_models(self) -> Sequence[tuple[str, str]]:
        """The models that fields name besides `model`, each behind its field; none of a form."""

    @property
    def recorded(self) -> bytes:
        """The body in a recording, or a JSON object in its place."""

    @property
    def is_repeatable(self) -> bool:
        """True if another attempt can send the request."""

    def estimated_tokens(self) -> int:
        """Return the expected tokens of the request; 0 if it uses none."""

    async def request(self, endpoint: KindEndpoint, model: str) -> PassedRequest:
        """Return the request for a backend with its name of the model."""


class QueryModel:
    """A GET request with the model in its query."""

    recorded, is_repeatable = b"", True

    def __init__(self, http: HttpRequest, *, uses_tokens: bool) -> None:
        """Raise BadRequest without a model.  uses_tokens: the backend calls the model."""
        self._tokens = _UNKNOWN if uses_tokens else 0
        self._query = dict(parse_qsl(http.scope["query_string"].decode("latin-1"), keep_blank_values=True))
        if not (model := self._query.get("model")):
            raise missing_parameter("model")
        self.model, self.other_models = model, [*models_in_fields(self._query)]

    def estimated_tokens(self) -> int:
        """Return 0 if the backend does not call the model."""
        return self._tokens

    async def request(self, endpoint: KindEndpoint, model: str) -> PassedRequest:
        """Return the request with the backend's name of the model."""
        return PassedRequest("GET", f"{endpoint.path}?{urlencode({**self._query, 'model': model})}", {}, b"", b"")


class JsonBody:
    """A JSON object, which stays as it is but for the model and the names of fields."""

    is_repeatable = True

    def __init__(self, raw: bytes, counts: Counts) -> None:
        """Raise BadRequest for a body without a model."""
        body = decode_body(raw, counts)
        _check(body, "")
        self.model: str = body["model"]
        self.other_models = [*models_in_fields(body)]
        self._fields = json.decode(raw, type=dict[str, Raw])
        self.recorded = raw

    def estimated_tokens(self) -> int:
        """Return the tokens of a text of this length."""
        return estimate_tokens_from_characters(len(self.recorded))

    async def request(self, endpoint: KindEndpoint, model: str) -> PassedRequest:
        """Return the request with the backend's names of the model and of the fields."""
        fields = {endpoint.names.get(name, name): value for name, value in self._fields.items()}
        body = json.encode({**fields, "model": model})
        return PassedRequest("POST", endpoint.path, _JSON, body, body)


class MultipartBody:
    """A multipart body; the gateway has read it up to the model at least."""

    other_models = ()

    def __init__(self, upload: ClientUpload, model: str) -> None:
        self._upload, self.model = upload, model

    @property
    def recorded(self) -> bytes:
        """The bytes that have arrived, as a number."""
        return json.encode({"model": self.model, "multipart_bytes": self._upload.size})

    @property
    def is_repeatable(self) -> bool:
        """True until bytes have been sent that are not kept."""
        return self._upload.is_repeatable

    def estimated_tokens(self) -> int:
        """Return 1: the length of audio and images says nothing about tokens."""
        return _UNKNOWN

    async def request(self, endpoint: KindEndpoint, model: str) -> PassedRequest:
        """Return the request with the backend's name of the model; a large body goes in pieces."""
        upload, headers = self._upload, {"content-type": self._upload.content_type}
        body = await upload.whole(model) or partial(upload.pieces, model)
        return PassedRequest("POST", endpoint.path, headers, body, self.recorded, upload.length(model))


def accept_header(http: HttpRequest) -> dict[str, str]:
    """Return the client's `accept`, by which some servers choose the type of the response."""
    accept = get_header(http.scope, b"accept")
    return {"accept": accept} if accept else {}
