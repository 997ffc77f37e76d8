"""What clients send, to each endpoint: a request that every kind of backend can be asked with, or a refusal that tells why."""

import json
import os
from functools import cache, partial

from msgspec import json as fast

from fuzz.framing import reference
from fuzz.mutation import mutated
from fuzz.target import Input, Target, begun, is_json
from gateway.api import chat, completions, embeddings, messages, rerank, responses, tokenize
from gateway.api.body import COUNTS, Counts, decode_body
from gateway.api.chat.schema import KNOWN
from gateway.api.responses.input_items import ITEMS, HistoryRules, referenced_ids
from gateway.api.responses.stored_items import complete_added_items
from gateway.api.validation import check_metadata, list_of, object_, object_of
from gateway.backends import KINDS
from gateway.backends.dialects import DIALECTS
from gateway.backends.kinds import ROWS
from gateway.backends.openai import request_body
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.openai.request_body import BodyTarget as Backend
from gateway.errors import ClientError
from gateway.request import StoredReasoning
from gateway.transforms import attachments, lower_request, output_enforcement, past_tool_calls, prompted_tools
from gateway.transforms.context_window import summary_request
from gateway.transforms.output_validation import EnforcementTerms, output_validation
from gateway.transforms.text_filters import stop_filters
from gateway.warnings import Warnings
from support.paths import TESTS

_CHAT, _RESPONSES = "/v1/chat/completions", "/v1/responses"
_COUNTS = Counts(1 << 40, 1 << 40) if os.environ.get("FUZZ_COUNTS") == "off" else COUNTS
_KINDS = sorted(KINDS)
_COMPLETING = [name for name in _KINDS if ROWS[name].services.completions]
_ITEMS = object_of({}, {"items": list_of(object_, most=20), "metadata": check_metadata})
_KNOWN_ITEMS = {
    "msg_1": {"id": "msg_1", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    "fc_1": {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
}
_SETTINGS = [
    responses.ParseSettings(
        lambda sealed: StoredReasoning(sealed, (), "m") if sealed else None, repair_dangling_calls=repaired
    )
    for repaired in (False, True)
]


def refusing(ask):
    """A check of an Input: a refusal is all that `ask` may raise."""

    def check(data):
        try:
            ask(Input.of(data))
        except ClientError as error:
            check_refusal(error.problem)

    return check


def check_refusal(problem):
    """It is the client's fault, and the client is told how."""
    assert 400 <= problem.status < 500
    assert fast.decode(messages.error_body(problem, "req_1"))["error"]["message"]
    error = fast.decode(problem.body())["error"]
    assert error == problem.error() and {*error} == {"message", "type", "code", "param"}
    assert error["message"] and error["type"]


@refusing
def check_chat(given):
    params = chat.parse_chat(given.content, _COUNTS)
    ledger = Warnings()
    _put(params.request, given, ledger)
    chat.chat_encoder(chat.CompletionHead("chatcmpl-1", 1, "m"), params, ledger, str).start()


@refusing
def check_completion(given):
    params, name = completions.parse_completion(given.content, _COUNTS), given.choose(0, _COMPLETING)
    ledger, does = Warnings(), ROWS[name].services.completions
    request_body.prompts_to_echo(params.request, does, ledger)
    request_body.supports_suffix(params.request, does)
    assert is_json(request_body.completion_body(does, params.request, _target(given), KNOWN, ledger))
    completions.completion_encoder(completions.CompletionHead("cmpl-1", 1, "m"), params, ledger).start()


@refusing
def check_response(given):
    settings, ledger = given.choose(3, _SETTINGS), Warnings()
    draft = responses.draft_response(decode_body(given.content, _COUNTS), settings)
    before = given.choose(2, ((), tuple(_KNOWN_ITEMS.values())))
    params = responses.parse_response(draft, responses.InputContext(before, _KNOWN_ITEMS), settings, ledger)
    head, inputs = responses.ResponseHead("resp_1", 1, "m"), responses.EncoderInputs(_id, lambda: 1, str, str)
    responses.response_encoder(head, params, ledger, inputs).start()
    queued, events = responses.created_events(head, params)
    assert is_json(fast.encode(queued)) and all(map(is_json, reference(events)))
    _put(params.request, given, ledger)
    _put(summary_request(params.request), given, ledger)
    responses.user_messages([*before, *draft.input(_KNOWN_ITEMS)], _id)


@refusing
def check_message(given):
    settings, ledger = given.choose(3, _SETTINGS), Warnings()
    parse = given.choose(2, (messages.parse_message, messages.parse_token_count))
    params = parse(decode_body(given.content, _COUNTS), settings, ledger)
    inputs = responses.EncoderInputs(_id, lambda: 1, str, str)
    messages.message_encoder(messages.MessageHead("msg_1", "m"), params, ledger, inputs).start()
    _put(params.request, given, ledger)


@refusing
def check_embeddings(given):
    _ask(embeddings.parse_embeddings(given.content, _COUNTS), given)


@refusing
def check_rerank(given):
    _ask(rerank.parse_rerank(given.content, _COUNTS), given)


@refusing
def check_tokens(given):
    _ask(given.choose(1, (tokenize.parse_tokenize, tokenize.parse_detokenize))(given.content, _COUNTS), given)


@refusing
def check_items(given):
    body = decode_body(given.content or b"{}", _COUNTS)
    _ITEMS(body, "")
    items = body.get("items", [])
    known = {id: item for id, item in _KNOWN_ITEMS.items() if id in referenced_ids(items)}
    rules = HistoryRules(_SETTINGS[0].open, Warnings(), model="", items=known)
    assert all(
        item["id"] and item["type"] and is_json(fast.encode(item))
        for item in complete_added_items(items, "items", rules, _id)
    )


def _put(client_request, given, ledger):
    """What becomes of a request on its way to a backend of some kind."""
    client_request, _ = attachments.files_to_text(client_request, lambda _: ("", True))
    request, _ = lower_request(client_request, ledger)
    target = _target(given)
    request = past_tool_calls.convert_call_ids(request, given.choose(2, (None, "nine")), ledger)
    if target.prompted:
        request = prompted_tools.tools_to_prompt(request, ledger)
    how = output_enforcement.enforcement_means(target.kind, mute=target.cannot_force_tools, again=False)
    request = output_enforcement.enforce_output(request, target.kind, how, ledger)
    dialect = DIALECTS[target.kind.dialect]
    assert is_json(dialect.body(request, target, KNOWN, ledger))
    dialect.decoder(request, ledger)
    output_validation(client_request, EnforcementTerms, ledger)
    stop_filters(request)


def _target(given):
    kind, way = KINDS[given.choose(0, _KINDS)], given.choices[1]
    policy = MessagePolicy(
        developer=("system", "native")[way & 1],
        late_system=("keep", "user", "merge")[(way >> 1) % 3],
        reasoning=kind.reasoning,
        alternate=bool(way & 8),
        continues=kind.continues,
        calls_alone=kind.calls_alone,
        names=kind.names,
    )
    kind = kind.without_parsers() if way & 16 else kind
    return Backend("up", kind, policy, bool(way & 16), bool(way & 32), bool(way & 64), bool(way & 128))


def _ask(put, given):
    name = given.choose(0, _KINDS)
    if query := put.ask(ROWS[name].services, "up", Warnings()):
        assert query[0].startswith("/") and is_json(query[1])


def _id(prefix):
    return f"{prefix}1"


# What they begin with


_REQUESTS = TESTS / "backends" / "requests"


@cache
def request_bodies(path):
    """The bodies that other tests ask with at a path."""
    bare = {"messages": [{"role": "user", "content": "Hello"}]} if path == _CHAT else {"input": "Hello"}
    found = [
        {"model": "m", **bare, **case["asks"]}
        for file in sorted((*_REQUESTS.glob("*.json"), *_REQUESTS.glob("clients/*.json")))
        for case in _cases(json.loads(file.read_text("utf-8")))
        if case.get("path", _RESPONSES if file.stem == "responses" else _CHAT) == path
    ]
    if path == _RESPONSES:
        found += [one["request"] for one in json.loads((TESTS / "recordings/codex.json").read_text("utf-8"))]
    return [json.dumps(one) for one in found]


def _cases(document):
    return document.values() if isinstance(document, dict) else document


def chat_seeds():
    return (begun(body, place, place * 7) for place, body in enumerate(request_bodies(_CHAT)))


def response_seeds():
    return (begun(body, place, place * 7) for place, body in enumerate(request_bodies(_RESPONSES)))


@cache
def message_bodies():
    """The bodies of real clients, and one with everything."""
    everything = json.loads((TESTS / "api" / "messages" / "everything.json").read_text("utf-8"))
    sent = json.loads((_REQUESTS / "clients" / "messages_api.json").read_text("utf-8"))
    return [json.dumps(body) for body in (everything, *({"model": "m", **case["asks"]} for case in sent.values()))]


def message_seeds():
    return (begun(body, place, place * 7) for place, body in enumerate(message_bodies()))


def item_seeds():
    for body in request_bodies(_RESPONSES):
        if isinstance(given := json.loads(body)["input"], list):
            yield begun(json.dumps({"items": given[:20], "metadata": {"a": "b"}}))
    for kind in ITEMS:
        yield begun(json.dumps({"items": [{"type": kind, "id": "i_1", **_MEMBERS}]}))


_MEMBERS = {
    "call_id": "call_1", "name": "f", "arguments": "{}", "input": "x", "output": "y", "status": "completed", "role": "user",
    "content": "Hi", "summary": [{"type": "summary_text", "text": "Well"}], "encrypted_content": "sealed", "tools": [],
    "action": {"type": "exec", "command": ["ls"]}, "operation": {"type": "delete_file", "path": "a"}, "queries": ["q"],
    "server_label": "s", "code": "1", "outputs": [{"type": "logs", "logs": "1"}],
}  # fmt: skip


def completion_seeds():
    more = (
        {}, {"prompt": ["a", "b"]}, {"prompt": [1, 2]}, {"prompt": [[1], [2, 3]]}, {"n": 2, "best_of": 3}, {"echo": True},
        {"logprobs": 0, "stream": True, "stream_options": {"include_usage": True}}, {"suffix": "x", "stop": ["a", "b"]},
        {"logit_bias": {"1": 5}, "seed": 1, "temperature": 0.5, "user": "u", "max_tokens": 1, "top_k": 5},
    )  # fmt: skip
    return (begun(json.dumps({"model": "m", "prompt": "Hello", **one}), place) for place, one in enumerate(more * 2))


def embedding_seeds():
    more = (
        {},
        {"input": ["a", "b"]},
        {"input": [1, 2]},
        {"input": [[1], [2]]},
        {"input": ["a", {"prompt_string": "b", "multimodal_data": ["AAAA"]}, {"text": "c"}]},
        {"input": None, "messages": [{"role": "query", "content": [{"type": "text", "text": "a"}]}]},
        {"dimensions": 2, "encoding_format": "base64", "user": "u", "x": 1},
    )
    return (begun(json.dumps({"model": "m", "input": "Hello", **one}), place) for place, one in enumerate(more))


def rerank_seeds():
    more = (
        {},
        {"documents": [{"text": "a"}, {"text": "b", "c": 1}]},
        {"top_n": 1, "return_documents": True, "x": None},
    )
    return (
        begun(json.dumps({"model": "m", "query": "q", "documents": ["a", "b"], **one}), place)
        for place, one in enumerate(more)
    )


def token_seeds():
    yield begun('{"model": "m", "prompt": "Hello", "add_special_tokens": false}')
    yield begun('{"model": "m", "messages": [{"role": "user", "content": "Hello"}], "x": 1}')
    yield begun('{"model": "m", "tokens": [1, 2, 3]}', 0, 1)


@cache
def words():
    """The names and the short values of all that the tests ask."""
    found = {"null", "true", "false", *ITEMS, *KNOWN}
    for body in (*request_bodies(_CHAT), *request_bodies(_RESPONSES), *message_bodies()):
        found |= {word for word in body.split('"')[1::2] if word.isidentifier()}
    return sorted(found)


_target_of = partial(Target, words=words, mutated=mutated)
TARGETS = {
    "chat": _target_of(check_chat, chat_seeds),
    "completions": _target_of(check_completion, completion_seeds),
    "responses": _target_of(check_response, response_seeds),
    "items": _target_of(check_items, item_seeds),
    "messages": _target_of(check_message, message_seeds),
    "embeddings": _target_of(check_embeddings, embedding_seeds),
    "rerank": _target_of(check_rerank, rerank_seeds),
    "tokens": _target_of(check_tokens, token_seeds),
}
