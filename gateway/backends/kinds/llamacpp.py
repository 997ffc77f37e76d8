"""Describe llama.cpp b11549, from tools/server/server-schema.cpp and its parser of chat completions.

A JSON schema becomes a grammar in its notation (its grammars/README.md).  The grammar covers types, properties, items,
enum, const, alternatives and $ref, and ignores other keywords.  So a value that fits the schema also fits the grammar,
except for the order of members: required ones come first.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import json

from gateway.backends.field_rules import ALONE, AS_A_FORM, DROPPED, LOCAL, UNENFORCED, RenamedRule, TranslatedRule
from gateway.backends.kind import FORMAT, Kind, TokenCounter, parts_passed
from gateway.backends.kind_row import DiscoverySigns, KindAdvice, KindEndpoint, KindRow, MetadataQueries, endpoints_at
from gateway.backends.model_metadata import (
    QUESTION,
    MetadataByModel,
    MetadataQuery,
    ModelMetadata,
    TemplateSettings,
    of_one_model,
    opened_prompt,
    optional_text,
    positive_count,
)
from gateway.backends.services import ECHOED_HERE, RERANK, BackendServices, CompletionsSupport, for_completions
from gateway.request import Request

_DEEPEST = 32  # levels of nested schemas; deeper values may be any JSON
_MAX = 1 << 20  # characters of expressions, nested ones counted at each level; later values may be any JSON
_JSON = r"""
value ::= object | array | string | number | boolean | null
object ::= "{" space (string ":" space value ("," space string ":" space value)*)? "}" space
array ::= "[" space (value ("," space value)*)? "]" space
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" space
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})? space
integer ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) space
boolean ::= ("true" | "false") space
null ::= "null" space
space ::= " "?
"""
_TYPES = frozenset(("object", "array", "string", "number", "integer", "boolean", "null"))


def schema_to_gbnf(schema: Mapping[str, Any]) -> str:
    """Return the grammar of a whole response."""
    return "\n".join(_GrammarRules(schema).all()) + _JSON


class _GrammarRules:
    """The rules of a grammar.

    A part that occurs twice has its own rule, so the grammar grows linearly with the schema.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._names: dict[str, str] = {}  # rule names of definitions, by $ref
        self._paths: list[str] = []  # $ref paths of the definitions, in order of first use
        self._written: list[str] = []
        self._room = _MAX

    def all(self) -> list[str]:
        """Return all rules.

        Definitions may refer to each other in circles, so each one is written once, from a growing list.
        """
        root = f"root ::= space {self.of(self._root)}"
        for path in self._paths:
            self._written.append(f"{self._names[path]} ::= {self.of(self._found(path))}")
        return [root, *self._written]

    def of(self, schema: Any, depth: int = 0) -> str:  # noqa: ANN401 - decoded JSON
        """Return an expression for the JSON that fits, with the white space after it."""
        if self._room < 0:
            return "value"
        match schema:
            case {"$ref": str(path)}:
                text = self._named(path)
            case {"const": value}:
                text = _literal(value)
            case {"enum": [_, *_] as values}:
                text = _either(map(_literal, values))
            case {"anyOf": [_, *_] as options} | {"oneOf": [_, *_] as options} if depth < _DEEPEST:
                text = _either(self.of(option, depth + 1) for option in options)
            case {"type": [_, *_] as kinds} if depth < _DEEPEST:
                words = dict.fromkeys(kind if isinstance(kind, str) else "" for kind in kinds)  # each type once
                text = _either(self.of({**schema, "type": word}, depth + 1) for word in words)
            case {"type": str(kind)} if kind in _TYPES:
                text = self._typed(kind, schema, depth)
            case _:
                text = "value"
        self._room -= len(text)
        return text

    def _named(self, path: str) -> str:
        if path not in self._names:
            self._names[path] = f"of-{len(self._names)}"
            self._paths.append(path)
        return self._names[path]

    def _typed(self, kind: str, schema: Mapping[str, Any], depth: int) -> str:
        match schema:
            case {"type": "object", "properties": {} as properties} if properties and depth < _DEEPEST:
                return self._object(properties, schema.get("required"), depth + 1)
            case {"type": "array", "items": items} if depth < _DEEPEST:
                one = self._rule(self.of(items, depth + 1))
                several = f'{one} ("," space {one})*'
                return f'"[" space {several if schema.get("minItems") else f"({several})?"} "]" space'
        return kind

    def _object(self, properties: Mapping[str, Any], required: object, depth: int) -> str:
        pairs = {name: f'{_literal(name)} ":" space {self.of(inner, depth)}' for name, inner in properties.items()}
        wanted = {name for name in required if isinstance(name, str)} if isinstance(required, list) else frozenset()
        needed = [name for name in pairs if name in wanted]
        others = [pair for name, pair in pairs.items() if name not in wanted]
        first, more = self._any_of(others)
        inside = ' "," space '.join(pairs[name] for name in needed) + f" {more}" if needed else f"({first})?"
        return f'"{{" space {inside} "}}" space'

    def _any_of(self, pairs: Sequence[str]) -> tuple[str, str]:
        """Return two expressions for some of these pairs, in their order.

        The first is for the beginning of the object, the second follows other members.
        """
        first = more = ""
        for pair in reversed(pairs):
            one = self._rule(pair)
            first = self._rule(f"{one} {more} | {first}" if first else one)
            more = self._rule(f'("," space {one})? {more}')
        return first, more

    def _rule(self, text: str) -> str:
        name = f"one-{len(self._written)}"
        self._written.append(f"{name} ::= {text}")
        return name

    def _found(self, path: str) -> object:
        """Return the target of a $ref; None if it is missing."""
        found: Any = self._root
        for step in filter(None, path.removeprefix("#").split("/")):
            found = found.get(step) if isinstance(found, Mapping) else None
        return found


def _either(options: Iterable[str]) -> str:
    return f"({' | '.join(options)})"


def _literal(value: object) -> str:
    """Return an expression for the exact JSON of a value."""
    text = json.encode(value).decode()
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}" space'


def _logprobs(wanted: object, request: Request) -> Mapping[str, Any]:
    """Request one candidate if the client sets no `top_logprobs`, as the server's default is 20."""
    alone = wanted is True and "top_logprobs" not in request.rest
    return {"logprobs": wanted, **({"top_logprobs": 1} if alone else {})}


def _at_least_one(tops: Any, _: Request) -> Mapping[str, Any]:  # noqa: ANN401 - decoded JSON
    return {"top_logprobs": max(tops, 1)}


def _with_switch(effort: object, _: Request) -> Mapping[str, Any]:
    """Turn the template's switch off as well for `none`.

    llama.cpp only passes the effort on to the template, and many templates know only the switch.
    """
    return {"reasoning_effort": effort} | ({"chat_template_kwargs.enable_thinking": False} if effort == "none" else {})


def _as_grammar(format: dict[str, Any], request: Request) -> Mapping[str, Any]:
    """Send the response format as a grammar, as llama.cpp ignores it with `--skip-chat-parsing`.

    A grammar would prevent optional tool calls, so it is left out if tools may be called.
    """
    if format["type"] == "text" or (request.callable_tools and not request.guided):
        return {}
    return {"grammar": schema_to_gbnf((format.get("json_schema") or {}).get("schema") or {"type": "object"})}


def _props(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    template = data.get("chat_template_caps") or {}
    can = {name for name, does in (data.get("modalities") or {}).items() if does is True and name != "video"}
    can |= {"tools"} if template.get("supports_tools") is True else set()
    settings = data.get("default_generation_settings") or {}
    abilities = frozenset(can) if "modalities" in data else None
    return {
        "": ModelMetadata(positive_count(settings.get("n_ctx")), abilities, optional_text(data.get("chat_template")))
    }


def _begun(model: str, _: TemplateSettings) -> Mapping[str, Any]:
    """Return a request that ends with a message of the assistant, to see if the template leaves it open."""
    return {"model": model, "messages": [*QUESTION, {"role": "assistant", "content": _BEGINNING}]}


_BEGINNING = "Hello to you"
_PROPS = MetadataQuery("GET", "/props", _props, of_one_model)


KIND = Kind(
    fields=MappingProxyType(
        {
            **LOCAL,
            "logprobs": TranslatedRule("with tools, the response is requested unstreamed", _logprobs),
            "max_completion_tokens": RenamedRule("max_tokens"),
            "response_format": FORMAT,
            "reasoning_effort": TranslatedRule("`none` also turns off the template's switch", _with_switch),
            "tool_choice": ALONE,
            "top_logprobs": TranslatedRule("at least 1", _at_least_one),
        }
    ),
    extensions=frozenset(
        ("adaptive_decay", "adaptive_target", "add_generation_prompt", "backend_sampling", "cache_prompt",
         "chat_template_kwargs", "continue_final_message", "dry_allowed_length", "dry_base", "dry_multiplier",
         "dry_penalty_last_n", "dry_sequence_breakers", "dynatemp_exponent", "dynatemp_range", "echo", "grammar",
         "grammar_lazy", "grammar_triggers", "id_slot", "ignore_eos", "json_schema", "lora", "min_keep", "min_p",
         "mirostat", "mirostat_eta", "mirostat_tau", "n_cache_reuse", "n_discard", "n_indent", "n_keep", "n_probs",
         "parse_tool_calls", "post_sampling_probs", "preserved_tokens", "reasoning_budget_message",
         "reasoning_control", "reasoning_format", "repeat_last_n", "repeat_penalty", "response_fields",
         "return_progress", "return_tokens", "samplers", "sse_ping_interval", "t_max_predict_ms",
         "thinking_budget_tokens", "timings_per_token", "top_k", "top_n_sigma", "typical_p", "verbose",
         "xtc_probability", "xtc_threshold")
    ),
    takes_openings=True,
    parses=True,
    unparsed=MappingProxyType(
        {
            "response_format": TranslatedRule("`grammar`, omitted with tools", _as_grammar),
            "tool_choice": AS_A_FORM,
        }
    ),
    continues=True,
    echoes=True,
    counter=TokenCounter("/v1/chat/completions/input_tokens", "input_tokens"),
    counts_one=True,
    logprobs_only_whole=True,
    parts=parts_passed("image_url", "input_audio", "input_video", "video_url"),
    program="`llama-server`",
)  # fmt: skip
ROW = KindRow(
    position=3,
    kind=KIND,
    services=BackendServices(
        completions=CompletionsSupport(for_completions(KIND, best_of=UNENFORCED, echo=ECHOED_HERE, suffix=DROPPED)),
        embedding_objects=frozenset(("multimodal_data", "prompt_string")),
        embedding_fields=frozenset(("embd_normalize",)),
        redirects=MappingProxyType({"Pooling type 'none' is not OAI compatible": "/embeddings"}),
        rerank=RERANK,
        tokenize=MappingProxyType({"model": "model", "prompt": "content", "add_special_tokens": "add_special"}),
    ),
    endpoints=endpoints_at(
        "/v1/audio/transcriptions",
        others={
            "/v1/infill": KindEndpoint("/infill"),
            "/v1/slots": KindEndpoint("/slots"),
            "/v1/props": KindEndpoint("/props"),
            "/v1/models/load": KindEndpoint("/models/load"),
            "/v1/models/unload": KindEndpoint("/models/unload"),
        },
    ),
    metadata=MetadataQueries(
        models=(_PROPS,),
        template=_PROPS,
        prompt=MetadataQuery("POST", "/apply-template", lambda data: optional_text(data["prompt"]), opened_prompt),
        # A llama.cpp without Jinja, or without its parser, continues no message.
        continues=MetadataQuery("POST", "/apply-template", lambda data: data["prompt"].endswith(_BEGINNING), _begun),
    ),
    signs=DiscoverySigns(port=8080, server="llama.cpp", owner="llamacpp", path="/props"),
    advice=KindAdvice(
        texts={
            "calls": "start it with --jinja and without --skip-chat-parsing",
            "thoughts": "start it with --reasoning-format deepseek and without --skip-chat-parsing",
            "no_thoughts": "--reasoning-format none, or a chat template that opens no thought",
            "schema": "start it without --skip-chat-parsing",
            "images": "--mmproj FILE, if the model supports images",
            "window": "-c N, shared by the slots of -np",
        }
    ),
)
