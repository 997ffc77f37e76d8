"""Describe the APIs of a kind besides chat: legacy completions, embeddings, reranking and tokens.

Each kind has a row; None stands for an API that it lacks.
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from gateway.backends import KINDS, Kind
from gateway.backends.field_rules import (
    DROPPED,
    LOCAL,
    ONE_CHOICE,
    PASSED,
    UNENFORCED,
    EmulatedRule,
    FieldRule,
    RenamedRule,
)

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


def _of_texts(kind: Kind, **verdicts: FieldRule) -> Kind:
    """Return the kind with the rules for legacy completions."""
    passed = dict.fromkeys(("best_of", "echo", "logprobs", "max_tokens", "suffix"), PASSED)
    own = {**passed, "max_completion_tokens": RenamedRule("max_tokens")}
    return replace(kind, fields=MappingProxyType({**kind.fields, **own, **verdicts}))


def _same(*names: str) -> FieldNames:
    return MappingProxyType(dict(zip(names, names, strict=True)))


_SAID_HERE = EmulatedRule("the gateway adds the prompt itself")
# Ollama 0.31, openai/openai.go: CompletionRequest
_OLLAMA = Kind(fields=MappingProxyType({**LOCAL, "logit_bias": DROPPED, "n": ONE_CHOICE}), forwards="none", parses=True)
# transformers 5.19, cli/serving/completion.py: it applies no template here, and appends the suffix to its text.
_TRANSFORMERS = replace(KINDS["transformers"], extensions=frozenset(("generation_config",)))
_SILENT = ("logit_bias", "logprobs", "suffix")
_RERANK = "/v1/rerank"
_PROMPT = ("model", "prompt", "add_special_tokens")
_CHAT = ("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template_kwargs")
# vLLM 0.33, entrypoints/pooling/base/protocol.py
_VLLM_EMBEDDINGS = frozenset(
    ("add_generation_prompt", "add_special_tokens", "cache_salt", "chat_template", "chat_template_kwargs",
     "continue_final_message", "embed_dtype", "endianness", "media_io_kwargs", "mm_processor_kwargs", "padding",
     "priority", "request_id", "truncate_prompt_tokens", "truncation_side", "use_activation")
)  # fmt: skip

SERVICES: Mapping[str, BackendServices] = MappingProxyType(
    {
        "openai": BackendServices(
            completions=CompletionsSupport(
                _of_texts(KINDS["openai"], metadata=PASSED)
            ),  # the gateway stores `metadata` only for chat
            embeds_messages=True,
            embedding_objects=None,
            rerank=_RERANK,
            unheard=frozenset(),
        ),
        "vllm": BackendServices(
            completions=CompletionsSupport(_of_texts(KINDS["vllm"], best_of=UNENFORCED)),
            embeds_messages=True,
            embedding_fields=_VLLM_EMBEDDINGS,
            rerank=_RERANK,
            tokenize=_same(*_PROMPT, *_CHAT),
        ),
        "llamacpp": BackendServices(
            completions=CompletionsSupport(
                _of_texts(KINDS["llamacpp"], best_of=UNENFORCED, echo=_SAID_HERE, suffix=DROPPED)
            ),
            embedding_objects=frozenset(("multimodal_data", "prompt_string")),
            embedding_fields=frozenset(("embd_normalize",)),
            redirects=MappingProxyType({"Pooling type 'none' is not OAI compatible": "/embeddings"}),
            rerank=_RERANK,
            tokenize=MappingProxyType({"model": "model", "prompt": "content", "add_special_tokens": "add_special"}),
        ),
        "ollama": BackendServices(
            completions=CompletionsSupport(
                _of_texts(_OLLAMA, best_of=UNENFORCED, echo=_SAID_HERE, logprobs=DROPPED),
                several=False,
                templated=True,
            )
        ),
        "lmstudio": BackendServices(
            completions=CompletionsSupport(
                _of_texts(KINDS["lmstudio"], best_of=UNENFORCED, echo=_SAID_HERE, logprobs=DROPPED, suffix=DROPPED),
                several=False,
            )
        ),
        "sglang": BackendServices(
            completions=CompletionsSupport(_of_texts(KINDS["sglang"], best_of=UNENFORCED)),
            embedding_objects=frozenset(("image", "text", "video")),
            rerank=_RERANK,
            tokenize=_same(*_PROMPT),
        ),
        "transformers": BackendServices(
            completions=CompletionsSupport(
                _of_texts(_TRANSFORMERS, echo=_SAID_HERE, **dict.fromkeys(_SILENT, DROPPED), best_of=UNENFORCED),
                several=False,
            ),
            embeddings=None,
        ),
        "anthropic": BackendServices(completions=None, embeddings=None),
    }
)
