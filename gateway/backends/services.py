"""Describe the APIs of a kind besides chat: legacy completions, embeddings, reranking and tokens.

None stands for an API that a kind lacks.
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from gateway.backends.field_rules import PASSED, EmulatedRule, FieldRule, RenamedRule
from gateway.backends.kind import Kind

# The client's name of each field → the server's name.  Other fields are not sent.
FieldNames = Mapping[str, str]


class CompletionsSupport(Struct, frozen=True):
    """The legacy completions of a kind, at the path of OpenAI's API.

    kind: the rules for these requests; chat lacks some of their fields or has them in another form.
    several: the server accepts several prompts, and token ids.
    templated: the server puts the prompt into the chat template.
    """

    kind: Kind
    several: bool = True
    templated: bool = False


class BackendServices(Struct, frozen=True, kw_only=True):
    """The APIs of one kind besides chat.

    embeddings, rerank: paths.
    embeds_messages: embeddings can be of `messages` in place of `input`.
    embedding_objects: the members of objects in the `input` of embeddings; None: any objects; empty: none.
    embedding_fields: fields of embeddings beyond OpenAI's API.
    tokenize: the fields of a request to /tokenize; the reverse is /detokenize.
    unheard: fields that only OpenAI's own service uses, left out without a warning.
    redirects: words in the refusal of a request → the path that serves it instead, with the same body.
    """

    completions: CompletionsSupport | None
    embeddings: str | None = "/v1/embeddings"
    embeds_messages: bool = False
    embedding_objects: frozenset[str] | None = frozenset()
    embedding_fields: frozenset[str] = frozenset()
    rerank: str | None = None
    tokenize: FieldNames | None = None
    unheard: frozenset[str] = frozenset(("user",))
    redirects: Mapping[str, str] = MappingProxyType({})

    def path_after(self, refusal: str) -> str | None:
        """Return the path that serves a request with this refusal; None without one."""
        return next((path for words, path in self.redirects.items() if words in refusal), None)


def for_completions(kind: Kind, **verdicts: FieldRule) -> Kind:
    """Return the kind with the rules for legacy completions."""
    passed = dict.fromkeys(("best_of", "echo", "logprobs", "max_tokens", "suffix"), PASSED)
    own = {**passed, "max_completion_tokens": RenamedRule("max_tokens")}
    return replace(kind, fields=MappingProxyType({**kind.fields, **own, **verdicts}))


def same_names(*names: str) -> FieldNames:
    """Return the fields that the server has under the client's names."""
    return MappingProxyType(dict(zip(names, names, strict=True)))


ECHOED_HERE = EmulatedRule("the gateway adds the prompt itself")
RERANK = "/v1/rerank"
PROMPT_FIELDS = ("model", "prompt", "add_special_tokens")  # of a request to /tokenize
