"""List the endpoints that the gateway passes on: the one table that knows them.

The gateway replaces the model's name, and names of fields for some kinds.  It leaves all else of a request and of its
response as it is.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from gateway.config import Scope

ModelPlace = Literal["json", "multipart", "multipart or json", "query"]


class KindEndpoint(Struct, frozen=True):
    """The endpoint of a kind.

    names: the client's name of a field → the kind's; other fields of a JSON object keep theirs.
    """

    path: str
    names: Mapping[str, str] = {}


class PassThroughRow(Struct, frozen=True, kw_only=True):
    """An endpoint that is passed on.

    path: of the gateway; clients may leave out `/v1`.  summary: for the documentation, in the imperative.
    place: where the model's name stands; multipart bodies are streamed.  example: the fields of a request.
    kinds: the endpoint of each kind that has it.
    faithful: a fallback model does not do, as the result means nothing for another model.
    scope: the scope of keys that may use it.
    websocket: the endpoint is a WebSocket, whose messages are passed on in both directions.
    """

    path: str
    summary: str
    place: ModelPlace
    kinds: Mapping[str, KindEndpoint]
    method: Literal["GET", "POST"] = "POST"
    example: Mapping[str, str | list[str]] = {}
    faithful: bool = False
    scope: Scope = "inference"
    websocket: bool = False

    @property
    def name(self) -> str:
        """The name of the operation, as in `audio_speech`."""
        return self.path.removeprefix("/v1/").replace("/", "_")


# Other paths of endpoints; requests to them are requests to the endpoint.
ALIASES: Mapping[str, str] = MappingProxyType({"/v2/rerank": "/v1/rerank"})


def _at(path: str, *kinds: str, **others: KindEndpoint) -> Mapping[str, KindEndpoint]:
    return MappingProxyType({**dict.fromkeys(kinds, KindEndpoint(path)), **others})


def _names(**names: str) -> Mapping[str, str]:
    return MappingProxyType(names)


PASS_THROUGH: tuple[PassThroughRow, ...] = (
    PassThroughRow(
        path="/v1/audio/transcriptions",
        summary="Transcribe audio; `stream` true gives events.",
        place="multipart",
        kinds=_at("/v1/audio/transcriptions", "openai", "vllm", "llamacpp", "sglang", "transformers"),
    ),
    PassThroughRow(
        path="/v1/audio/translations",
        summary="Translate audio into English text; `stream` true gives events.",
        place="multipart",
        kinds=_at("/v1/audio/translations", "openai", "vllm"),
    ),
    PassThroughRow(
        path="/v1/audio/speech",
        summary="Speak a text: audio, or events if `stream_format` is `sse`.",
        place="json",
        kinds=_at("/v1/audio/speech", "openai", "vllm", "sglang"),
        example={"model": "kokoro", "input": "Hello!", "voice": "af_heart"},
    ),
    PassThroughRow(
        path="/v1/images/generations",
        summary="Generate images; `stream` true gives events.",
        place="json",
        kinds=_at("/v1/images/generations", "openai", "vllm", "sglang", "ollama"),
        example={"model": "flux", "prompt": "A lighthouse."},
    ),
    PassThroughRow(
        path="/v1/images/edits",
        summary="Edit images by a prompt, of a form or a JSON object; `stream` true gives events.",
        place="multipart or json",
        kinds=_at("/v1/images/edits", "openai", "vllm", "sglang"),
    ),
    PassThroughRow(
        path="/v1/images/variations",
        summary="Make variations of an image.",
        place="multipart",
        kinds=_at("/v1/images/variations", "openai"),
    ),
    PassThroughRow(
        path="/v1/moderations",
        summary="Classify texts and images by harm.",
        place="json",
        kinds=_at("/v1/moderations", "openai"),
        example={"model": "llama-guard", "input": "Hello!"},
        faithful=True,
    ),
    PassThroughRow(
        path="/v1/score",
        summary="Score pairs of texts.",
        place="json",
        kinds=_at(
            "/v1/score",
            "openai",
            vllm=KindEndpoint("/v1/score", _names(query="queries")),
            sglang=KindEndpoint(
                "/v1/score", _names(text_1="query", text_2="items", queries="query", documents="items")
            ),
        ),
        example={"model": "bge-reranker", "text_1": "Norway", "text_2": ["Oslo is its capital."]},
        faithful=True,
    ),
    PassThroughRow(
        path="/v1/classify",
        summary="Classify texts.",
        place="json",
        kinds=_at("/v1/classify", "openai", "sglang", vllm=KindEndpoint("/classify")),
        example={"model": "classifier", "input": ["Hello!"]},
        faithful=True,
    ),
    PassThroughRow(
        path="/v1/pooling",
        summary="Return the pooled hidden states of texts.",
        place="json",
        kinds=_at("/pooling", "vllm"),
        example={"model": "bge-m3", "input": "Hello!"},
        faithful=True,
    ),
    PassThroughRow(
        path="/v1/realtime",
        summary="Open a speech session as a WebSocket, by `?model=`.",
        method="GET",
        place="query",
        kinds=_at("/v1/realtime", "openai", "vllm"),
        websocket=True,
    ),
    PassThroughRow(
        path="/v1/infill",
        summary="Fill in code between a prefix and a suffix, as llama.cpp does.",
        place="json",
        kinds=_at("/infill", "llamacpp"),
        example={"model": "qwen-coder", "input_prefix": "def f(", "input_suffix": "): pass"},
    ),
    PassThroughRow(
        path="/v1/slots",
        summary="Return the slots of a llama.cpp server, by `?model=`; a key needs the scope `admin`.",
        method="GET",
        place="query",
        kinds=_at("/slots", "llamacpp"),
        faithful=True,
        scope="admin",
    ),
    PassThroughRow(
        path="/v1/props",
        summary="Return the properties of a llama.cpp server, by `?model=`.",
        method="GET",
        place="query",
        kinds=_at("/props", "llamacpp"),
        faithful=True,
    ),
    PassThroughRow(
        path="/v1/models/load",
        summary="Load a model in a router of llama.cpp; a key needs the scope `admin`.",
        place="json",
        kinds=_at("/models/load", "llamacpp"),
        example={"model": "qwen3"},
        faithful=True,
        scope="admin",
    ),
    PassThroughRow(
        path="/v1/models/unload",
        summary="Unload a model in a router of llama.cpp; a key needs the scope `admin`.",
        place="json",
        kinds=_at("/models/unload", "llamacpp"),
        example={"model": "qwen3"},
        faithful=True,
        scope="admin",
    ),
)
# The name of the operation by each path, the gateway's and the kinds'.
OPERATIONS: Mapping[str, str] = MappingProxyType(
    {path: row.name for row in PASS_THROUGH for path in (row.path, *(one.path for one in row.kinds.values()))}
)
