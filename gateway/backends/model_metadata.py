"""Read the metadata of a server's models: context length, chat template and abilities.

The context length is the limit of one request, not that of the training.  It is the share of one slot with llama.cpp,
and the loaded length with Ollama and LM Studio.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct

_LISTED = ("max_model_len", "context_length", "context_window", "loaded_context_length", "max_input_tokens")
LOADED_SECONDS = 10.0  # a result is valid if the server may soon load another model
AGENT_WINDOW = 8192  # tokens of an agent's prompt with its tools
QUESTION = [{"role": "user", "content": "Hello!"}]

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


def of_one_model(model: str, _: TemplateSettings) -> Mapping[str, Any]:
    """Return the fields of a query for one model."""
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
    return next(filter(None, (positive_count(entry.get(name)) for name in _LISTED)), None)


def _list(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    return {entry["id"]: ModelMetadata(context_length_of_entry(entry)) for entry in named_entries(data, "data")}


def named_entries(data: Any, name: str) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - decoded JSON
    """Yield the entries that have a name."""
    return (entry for entry in data[name] or () if isinstance(entry.get("id", entry.get("name")), str))


def positive_count(data: object) -> int | None:
    """Return a whole number above zero; None for anything else."""
    return data if isinstance(data, int) and data > 0 else None


def optional_text(data: object) -> str | None:
    """Return a text; None for anything else."""
    return data if isinstance(data, str) else None


def opened_prompt(model: str, settings: TemplateSettings) -> Mapping[str, Any]:
    """Return a request for a rendered prompt, to see how the template opens the response."""
    return {"model": model, "messages": QUESTION, "chat_template_kwargs": settings}


LISTED_MODELS = MetadataQuery("GET", "/v1/models", _list)  # the list of most servers
