"""List the endpoints that the gateway passes on: the one table that knows them.

The gateway replaces the model's name, and names of fields for some kinds.  It leaves all else of a request and of its
response as it is.
"""

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from gateway.backends.kind_row import KindEndpoint
from gateway.backends.kinds import ROWS

ModelPlace = Literal["json", "multipart", "multipart or json", "query"]


class PassThroughRow(Struct, frozen=True, kw_only=True, dict=True):
    """An endpoint that is passed on.

    path: of the gateway; clients may leave out `/v1`.  summary: for the documentation, in the imperative.
    place: where the model's name stands; multipart bodies are streamed.  example: the fields of a request.
    faithful: a fallback model does not do, as the result means nothing for another model.
    scope: the scope of keys that may use it.
    websocket: the endpoint is a WebSocket, whose messages are passed on in both directions.
    """

    path: str
    summary: str
    place: ModelPlace
    method: Literal["GET", "POST"] = "POST"
    example: Mapping[str, str | list[str]] = {}
    faithful: bool = False
    scope: Literal["inference", "admin"] = "inference"
    websocket: bool = False

    @cached_property
    def kinds(self) -> Mapping[str, KindEndpoint]:
        """The endpoint of each kind that has it."""
        return {name: row.endpoints[self.path] for name, row in ROWS.items() if self.path in row.endpoints}

    @property
    def name(self) -> str:
        """The name of the operation, as in `audio_speech`."""
        return self.path.removeprefix("/v1/").replace("/", "_")


# Other paths of endpoints; requests to them are requests to the endpoint.
ALIASES: Mapping[str, str] = MappingProxyType({"/v2/rerank": "/v1/rerank"})


PASS_THROUGH: tuple[PassThroughRow, ...] = (
    PassThroughRow(
        path="/v1/audio/transcriptions",
        summary="Transcribe audio; `stream` true gives events.",
        place="multipart",
    ),
    PassThroughRow(
        path="/v1/audio/translations",
        summary="Translate audio into English text; `stream` true gives events.",
        place="multipart",
    ),
    PassThroughRow(
        path="/v1/audio/speech",
        summary="Speak a text: audio, or events if `stream_format` is `sse`.",
        place="json",
        example={"model": "kokoro", "input": "Hello!", "voice": "af_heart"},
    ),
    PassThroughRow(
        path="/v1/images/generations",
        summary="Generate images; `stream` true gives events.",
        place="json",
        example={"model": "flux", "prompt": "A lighthouse."},
    ),
    PassThroughRow(
        path="/v1/images/edits",
        summary="Edit images by a prompt, of a form or a JSON object; `stream` true gives events.",
        place="multipart or json",
    ),
    PassThroughRow(
        path="/v1/images/variations",
        summary="Make variations of an image.",
        place="multipart",
    ),
    PassThroughRow(
        path="/v1/moderations",
        summary="Classify texts and images by harm.",
        place="json",
        example={"model": "llama-guard", "input": "Hello!"},
        faithful=True,
    ),
    PassThroughRow(
        path="/v1/score",
        summary="Score pairs of texts.",
        place="json",
        example={"model": "bge-reranker", "text_1": "Norway", "text_2": ["Oslo is its capital."]},
        faithful=True,
    ),
    PassThroughRow(
        path="/v1/classify",
        summary="Classify texts.",
        place="json",
        example={"model": "classifier", "input": ["Hello!"]},
        faithful=True,
    ),
    PassThroughRow(
        path="/v1/pooling",
        summary="Return the pooled hidden states of texts.",
        place="json",
        example={"model": "bge-m3", "input": "Hello!"},
        faithful=True,
    ),
    PassThroughRow(
        path="/v1/realtime",
        summary="Open a speech session as a WebSocket, by `?model=`.",
        method="GET",
        place="query",
        websocket=True,
    ),
    PassThroughRow(
        path="/v1/infill",
        summary="Fill in code between a prefix and a suffix, as llama.cpp does.",
        place="json",
        example={"model": "qwen-coder", "input_prefix": "def f(", "input_suffix": "): pass"},
    ),
    PassThroughRow(
        path="/v1/slots",
        summary="Return the slots of a llama.cpp server, by `?model=`; a key needs the scope `admin`.",
        method="GET",
        place="query",
        faithful=True,
        scope="admin",
    ),
    PassThroughRow(
        path="/v1/props",
        summary="Return the properties of a llama.cpp server, by `?model=`.",
        method="GET",
        place="query",
        faithful=True,
    ),
    PassThroughRow(
        path="/v1/models/load",
        summary="Load a model in a router of llama.cpp; a key needs the scope `admin`.",
        place="json",
        example={"model": "qwen3"},
        faithful=True,
        scope="admin",
    ),
    PassThroughRow(
        path="/v1/models/unload",
        summary="Unload a model in a router of llama.cpp; a key needs the scope `admin`.",
        place="json",
        example={"model": "qwen3"},
        faithful=True,
        scope="admin",
    ),
)
# The name of the operation by each path, the gateway's and the kinds'.
OPERATIONS: Mapping[str, str] = MappingProxyType(
    {path: row.name for row in PASS_THROUGH for path in (row.path, *(one.path for one in row.kinds.values()))}
)
