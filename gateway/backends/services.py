"""Describe the APIs of a kind besides chat: legacy completions, embeddings, ranks and tokens.

A kind is a row.  An API that it does not have is None.
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

# A client's word for a field → the server's; what is not here is not sent.
FieldNames = Mapping[str, str]


class CompletionsSupport(Struct, frozen=True):
    """Legacy completions, at the path of OpenAI's API.

    kind: as it is with these, which have fields that chat has not, or has in another form.
    several: it takes more than one prompt, and the ids of tokens.
    templated: it puts the prompt into the chat template.
    """

    kind: Kind
    several: bool = True
    templated: bool = False


class BackendServices(Struct, frozen=True, kw_only=True):
    """The APIs of one kind besides chat.

    embeddings, rerank: paths.
    tokenize: the fields of a request at that path, whose reverse is /detokenize.
    unheard: fields that only OpenAI's own service acts upon, left out without a word.
    """

    completions: CompletionsSupport
    embeddings: str | None = "/v1/embeddings"
    rerank: str | None = None
    tokenize: FieldNames | None = None
    unheard: frozenset[str] = frozenset(("user",))


def _of_texts(kind: Kind, **verdicts: FieldRule) -> Kind:
    """A kind as it is with completions."""
    passed = dict.fromkeys(("best_of", "echo", "logprobs", "max_tokens", "suffix"), PASSED)
    own = {**passed, "max_completion_tokens": RenamedRule("max_tokens")}
    return replace(kind, fields=MappingProxyType({**kind.fields, **own, **verdicts}))


def _same(*names: str) -> FieldNames:
    return MappingProxyType(dict(zip(names, names, strict=True)))


_SAID_HERE = EmulatedRule("the gateway says the prompt itself")
# Ollama 0.31, openai/openai.go: CompletionRequest
_OLLAMA = Kind(fields=MappingProxyType({**LOCAL, "logit_bias": DROPPED, "n": ONE_CHOICE}), forwards="none", parses=True)
# transformers 5.19, cli/serving/completion.py: it has no template here, and puts the suffix behind what it writes.
_TRANSFORMERS = replace(KINDS["transformers"], extensions=frozenset(("generation_config",)))
_SILENT = ("logit_bias", "logprobs", "suffix")
_RERANK = "/v1/rerank"
_PROMPT = ("model", "prompt", "add_special_tokens")
_CHAT = ("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template_kwargs")

SERVICES: Mapping[str, BackendServices] = MappingProxyType(
    {
        "openai": BackendServices(
            completions=CompletionsSupport(
                _of_texts(KINDS["openai"], metadata=PASSED)
            ),  # which is stored with chat only
            rerank=_RERANK,
            unheard=frozenset(),
        ),
        "vllm": BackendServices(
            completions=CompletionsSupport(_of_texts(KINDS["vllm"], best_of=UNENFORCED)),
            rerank=_RERANK,
            tokenize=_same(*_PROMPT, *_CHAT),
        ),
        "llamacpp": BackendServices(
            completions=CompletionsSupport(
                _of_texts(KINDS["llamacpp"], best_of=UNENFORCED, echo=_SAID_HERE, suffix=DROPPED)
            ),
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
    }
)
