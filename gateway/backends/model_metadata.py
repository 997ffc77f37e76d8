"""Read the metadata of a server's models: context length, chat template and abilities.

The context length is that of a request, not that of the training: the share of a slot with llama.cpp, and the loaded
length with Ollama and LM Studio.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from msgspec import Struct

_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)
_OLLAMAS = {"vision": "vision", "tools": "tools", "thinking": "reasoning", "embedding": "embeddings", "audio": "audio"}
_LM_STUDIOS = {"vlm": "vision", "embeddings": "embeddings", "tool_use": "tools"}
_LISTED = ("max_model_len", "context_length", "context_window", "loaded_context_length")
_LOADED_SECONDS = 10.0  # what is loaded may soon be something else
_QUESTION = [{"role": "user", "content": "Hello!"}]
_BEGINNING = "Hello to you"
_MARKS = str.maketrans({"Ċ": "\n", "Ġ": " ", "▁": " "})  # line ends and spaces in the names of tokens

TemplateSettings = Mapping[str, Any]  # of a chat template
_Found = TypeVar("_Found")


class ModelMetadata(Struct, frozen=True):
    """window: tokens, None where nobody says.

    abilities: of vision, audio, tools, reasoning and embeddings; None where nothing is said of any.
    template: the chat template; None where it is not shown.
    """

    window: int | None = None
    abilities: frozenset[str] | None = None
    template: str | None = None

    def __or__(self, other: "ModelMetadata") -> "ModelMetadata":
        """Merge both; of two context lengths, or templates, take the first."""
        items = [one.abilities for one in (self, other) if one.abilities is not None]
        abilities = frozenset().union(*items) if items else None
        return ModelMetadata(self.window or other.window, abilities, self.template or other.template)

    def __and__(self, other: "ModelMetadata") -> "ModelMetadata":
        """Return the facts that hold with either: the shorter context, and the known abilities of both."""
        windows = [one.window for one in (self, other) if one.window]
        items = [one.abilities for one in (self, other) if one.abilities is not None]
        abilities = frozenset.intersection(*items) if items else None
        return ModelMetadata(min(windows, default=None), abilities, self.template)


def _of_all(_: str, __: TemplateSettings) -> Mapping[str, Any]:
    return {}


def _of_one(model: str, _: TemplateSettings) -> Mapping[str, Any]:
    return {"model": model}


class MetadataQuery(Struct, Generic[_Found], frozen=True):
    """A question, and how to find in the answer what is wanted.

    fields: what goes with it, of a model and the settings of its template.
    seconds: how long the answer holds.
    """

    method: str
    path: str
    read: Callable[[Any], _Found]
    fields: Callable[[str, TemplateSettings], Mapping[str, Any]] = _of_all
    seconds: float = 300.0


# By the names of models; "" is the one that was asked about.
MetadataByModel = Mapping[str, ModelMetadata]


def context_length_of_entry(entry: Mapping[str, Any]) -> int | None:
    """Return the context length of an entry of /v1/models, under any of the servers' names for it."""
    return next(filter(None, (_count(entry.get(name)) for name in _LISTED)), None)


def _props(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    template = data.get("chat_template_caps") or {}
    can = {name for name, does in (data.get("modalities") or {}).items() if does is True and name != "video"}
    can |= {"tools"} if template.get("supports_tools") is True else set()
    settings = data.get("default_generation_settings") or {}
    abilities = frozenset(can) if "modalities" in data else None
    return {"": ModelMetadata(_count(settings.get("n_ctx")), abilities, _text(data.get("chat_template")))}


def _show(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    configured = _NUM_CTX.search(data.get("parameters") or "")
    words = data.get("capabilities")
    can = None if words is None else frozenset(_OLLAMAS[word] for word in words if word in _OLLAMAS)
    template = f"{data.get('template')}{data.get('model_info', {}).get('tokenizer.chat_template', '')}"
    return {"": ModelMetadata(int(configured[1]) if configured else None, can, template)}


def _tokenizer(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    return {"": ModelMetadata(template=_text(data["chat_template"]))}


def _running(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    """By the full names, and by those without the tag that goes without saying."""
    known = {entry["name"]: ModelMetadata(_count(entry.get("context_length"))) for entry in _entries(data, "models")}
    return known | {name.removesuffix(":latest"): one for name, one in known.items()}


def _list(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    return {entry["id"]: ModelMetadata(context_length_of_entry(entry)) for entry in _entries(data, "data")}


def _lm_studio(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    return {
        entry["id"]: ModelMetadata(context_length_of_entry(entry), _words(entry)) for entry in _entries(data, "data")
    }


def _words(entry: Mapping[str, Any]) -> frozenset[str]:
    words = [entry.get("type"), *(entry.get("capabilities") or ())]
    return frozenset(_LM_STUDIOS[word] for word in words if word in _LM_STUDIOS)


def _entries(data: Any, name: str) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - decoded JSON
    """Yield the entries with a name."""
    return (entry for entry in data[name] or () if isinstance(entry.get("id", entry.get("name")), str))


def _count(data: object) -> int | None:
    return data if isinstance(data, int) and data > 0 else None


def _text(data: object) -> str | None:
    return data if isinstance(data, str) else None


def _opened(model: str, settings: TemplateSettings) -> Mapping[str, Any]:
    """A question to see how a template goes on behind it."""
    return {"model": model, "messages": _QUESTION, "chat_template_kwargs": settings}


def _opened_in_tokens(model: str, settings: TemplateSettings) -> Mapping[str, Any]:
    return {**_opened(model, settings), "add_generation_prompt": True, "return_token_strs": True}


def _joined(data: Any) -> str | None:  # noqa: ANN401 - decoded JSON
    return "".join(data["token_strs"]).translate(_MARKS)


def _begun(model: str, _: TemplateSettings) -> Mapping[str, Any]:
    """An answer that has begun, to see if the template leaves it open."""
    return {"model": model, "messages": [*_QUESTION, {"role": "assistant", "content": _BEGINNING}]}


_MODELS = MetadataQuery("GET", "/v1/models", _list)
_PROPS = MetadataQuery("GET", "/props", _props, _of_one)
_SHOW = MetadataQuery("POST", "/api/show", _show, _of_one)

# By kind; what comes first counts.
ASKS: Mapping[str, tuple[MetadataQuery[MetadataByModel], ...]] = MappingProxyType(
    {
        "vllm": (_MODELS,),
        "sglang": (_MODELS,),
        "llamacpp": (_PROPS,),
        "ollama": (MetadataQuery("GET", "/api/ps", _running, seconds=_LOADED_SECONDS), _SHOW),
        "lmstudio": (MetadataQuery("GET", "/api/v0/models", _lm_studio, seconds=_LOADED_SECONDS),),
    }
)
# Where the chat template is shown,
TEMPLATES: Mapping[str, MetadataQuery[MetadataByModel]] = MappingProxyType(
    {"llamacpp": _PROPS, "ollama": _SHOW, "vllm": MetadataQuery("GET", "/tokenizer_info", _tokenizer)}
)
# and what it makes of a question, up to where the answer begins.
PROMPTS: Mapping[str, MetadataQuery[str | None]] = MappingProxyType(
    {
        "llamacpp": MetadataQuery("POST", "/apply-template", lambda data: _text(data["prompt"]), _opened),
        "vllm": MetadataQuery("POST", "/tokenize", _joined, _opened_in_tokens),
    }
)
# Whether it goes on from a last message of the assistant: a llama.cpp without Jinja, or without its parser, does not.
CONTINUES: Mapping[str, MetadataQuery[bool]] = MappingProxyType(
    {"llamacpp": MetadataQuery("POST", "/apply-template", lambda data: data["prompt"].endswith(_BEGINNING), _begun)}
)
