"""Read the metadata of a server's models: context length, chat template and abilities.

The context length is the limit of one request, not that of the training.  It is the share of one slot with llama.cpp,
and the loaded length with Ollama and LM Studio.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from msgspec import Struct

_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)
_OLLAMAS = {"vision": "vision", "tools": "tools", "thinking": "reasoning", "embedding": "embeddings", "audio": "audio"}
_ANTHROPICS = {"image_input": "vision", "thinking": "reasoning"}  # further capabilities are of no use here
_LM_STUDIOS = {"vlm": "vision", "embeddings": "embeddings", "tool_use": "tools"}
_LISTED = ("max_model_len", "context_length", "context_window", "loaded_context_length", "max_input_tokens")
_LOADED_SECONDS = 10.0  # the server may soon load another model
AGENT_WINDOW = 8192  # tokens of an agent's prompt with its tools
_QUESTION = [{"role": "user", "content": "Hello!"}]
_BEGINNING = "Hello to you"
_MARKS = str.maketrans({"Ċ": "\n", "Ġ": " ", "▁": " "})  # line ends and spaces in token strings

TemplateSettings = Mapping[str, Any]  # `chat_template_kwargs`
_Found = TypeVar("_Found")


class ModelMetadata(Struct, frozen=True):
    """The metadata of one model.

    window: the context length in tokens; None if unknown.
    abilities: a subset of vision, audio, tools, reasoning and embeddings; None if unknown.
    template: the chat template; None if the server does not show it.
    """

    window: int | None = None
    abilities: frozenset[str] | None = None
    template: str | None = None

    @property
    def capabilities(self) -> list[str] | None:
        """The abilities in the order in which all lists of models have them; None if unknown."""
        return None if self.abilities is None else sorted(self.abilities)

    def __or__(self, other: "ModelMetadata") -> "ModelMetadata":
        """Merge both; prefer the context length and the template of the first."""
        items = [one.abilities for one in (self, other) if one.abilities is not None]
        abilities = frozenset().union(*items) if items else None
        return ModelMetadata(self.window or other.window, abilities, self.template or other.template)

    def __and__(self, other: "ModelMetadata") -> "ModelMetadata":
        """Return the metadata that holds for both: the shorter context length, and the abilities that both have."""
        windows = [one.window for one in (self, other) if one.window]
        items = [one.abilities for one in (self, other) if one.abilities is not None]
        abilities = frozenset.intersection(*items) if items else None
        return ModelMetadata(min(windows, default=None), abilities, self.template)


def _of_all(_: str, __: TemplateSettings) -> Mapping[str, Any]:
    return {}


def _of_one(model: str, _: TemplateSettings) -> Mapping[str, Any]:
    return {"model": model}


class MetadataQuery(Struct, Generic[_Found], frozen=True):
    """A request for metadata, and how to read the response.

    read: extract the metadata from the decoded JSON.  The caller treats ValueError, KeyError, TypeError and
        AttributeError as no metadata.
    fields: the fields of the request, from the model's name and its template settings.
    seconds: how long the result stays valid.
    """

    method: str
    path: str
    read: Callable[[Any], _Found]
    fields: Callable[[str, TemplateSettings], Mapping[str, Any]] = _of_all
    seconds: float = 300.0


# Metadata by model name; "" stands for the model of the query.
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
    """Return the metadata by full name, and also by the name without the default tag."""
    known = {entry["name"]: ModelMetadata(_count(entry.get("context_length"))) for entry in _entries(data, "models")}
    return known | {name.removesuffix(":latest"): one for name, one in known.items()}


def _list(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    return {entry["id"]: ModelMetadata(context_length_of_entry(entry)) for entry in _entries(data, "data")}


def _lm_studio(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    return {
        entry["id"]: ModelMetadata(context_length_of_entry(entry), _words(entry)) for entry in _entries(data, "data")
    }


def _anthropic(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    return {
        entry["id"]: ModelMetadata(context_length_of_entry(entry), _supported(entry.get("capabilities")))
        for entry in _entries(data, "data")
    }


def _supported(capabilities: Any) -> frozenset[str] | None:  # noqa: ANN401 - decoded JSON
    """Return the abilities of a model, which all call tools; None if the server does not list them."""
    if not isinstance(capabilities, dict):
        return None
    can = {name for word, name in _ANTHROPICS.items() if (capabilities.get(word) or {}).get("supported") is True}
    return frozenset(("tools", *can))


def _words(entry: Mapping[str, Any]) -> frozenset[str]:
    words = [entry.get("type"), *(entry.get("capabilities") or ())]
    return frozenset(_LM_STUDIOS[word] for word in words if word in _LM_STUDIOS)


def _entries(data: Any, name: str) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - decoded JSON
    """Yield the entries that have a name."""
    return (entry for entry in data[name] or () if isinstance(entry.get("id", entry.get("name")), str))


def _count(data: object) -> int | None:
    return data if isinstance(data, int) and data > 0 else None


def _text(data: object) -> str | None:
    return data if isinstance(data, str) else None


def _opened(model: str, settings: TemplateSettings) -> Mapping[str, Any]:
    """Return a request for a rendered prompt, to see how the template opens the response."""
    return {"model": model, "messages": _QUESTION, "chat_template_kwargs": settings}


def _opened_in_tokens(model: str, settings: TemplateSettings) -> Mapping[str, Any]:
    return {**_opened(model, settings), "add_generation_prompt": True, "return_token_strs": True}


def _joined(data: Any) -> str | None:  # noqa: ANN401 - decoded JSON
    return "".join(data["token_strs"]).translate(_MARKS)


def _begun(model: str, _: TemplateSettings) -> Mapping[str, Any]:
    """Return a request that ends with a message of the assistant, to see if the template leaves it open."""
    return {"model": model, "messages": [*_QUESTION, {"role": "assistant", "content": _BEGINNING}]}


_MODELS = MetadataQuery("GET", "/v1/models", _list)
_PROPS = MetadataQuery("GET", "/props", _props, _of_one)
_SHOW = MetadataQuery("POST", "/api/show", _show, _of_one)

# Metadata queries by kind; earlier ones take precedence.
ASKS: Mapping[str, tuple[MetadataQuery[MetadataByModel], ...]] = MappingProxyType(
    {
        "vllm": (_MODELS,),
        "sglang": (_MODELS,),
        "llamacpp": (_PROPS,),
        "ollama": (MetadataQuery("GET", "/api/ps", _running, seconds=_LOADED_SECONDS), _SHOW),
        "anthropic": (MetadataQuery("GET", "/v1/models", _anthropic, lambda _, __: {"limit": 1000}),),
        "lmstudio": (MetadataQuery("GET", "/api/v0/models", _lm_studio, seconds=_LOADED_SECONDS),),
    }
)
# Queries for the chat template, by kind.
TEMPLATES: Mapping[str, MetadataQuery[MetadataByModel]] = MappingProxyType(
    {"llamacpp": _PROPS, "ollama": _SHOW, "vllm": MetadataQuery("GET", "/tokenizer_info", _tokenizer)}
)
# Queries for a rendered prompt, up to the start of the response, by kind.
PROMPTS: Mapping[str, MetadataQuery[str | None]] = MappingProxyType(
    {
        "llamacpp": MetadataQuery("POST", "/apply-template", lambda data: _text(data["prompt"]), _opened),
        "vllm": MetadataQuery("POST", "/tokenize", _joined, _opened_in_tokens),
    }
)
# Queries that tell if the server continues a last message of the assistant, by kind.  A llama.cpp without Jinja, or
# without its parser, does not.
CONTINUES: Mapping[str, MetadataQuery[bool]] = MappingProxyType(
    {"llamacpp": MetadataQuery("POST", "/apply-template", lambda data: data["prompt"].endswith(_BEGINNING), _begun)}
)
