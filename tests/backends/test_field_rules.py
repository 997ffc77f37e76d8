"""Test the field rules of each kind: every field and message part has a verdict that holds."""

import json
from typing import get_args, get_type_hints

import pytest
from openai.types.chat import ChatCompletionContentPartParam, completion_create_params

from gateway.api import chat
from gateway.api.chat.schema import KNOWN
from gateway.backends import KINDS, request_fields
from gateway.backends.dialects import DIALECTS
from gateway.backends.docs_page import kinds_page
from gateway.backends.extra_fields import EXTENSIONS, field_rule
from gateway.backends.field_rules import (
    LOCAL,
    OPENAI,
    DroppedRule,
    PassedRule,
    RejectedRule,
    RenamedRule,
    TranslatedRule,
    UnenforcedRule,
)
from gateway.backends.kinds import ROWS
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.openai.request_body import BodyTarget, prefill_of
from gateway.config import KindName
from gateway.errors import BadRequest
from gateway.warnings import Warnings
from support.backend_requests import FIELDS, cases
from support.paths import ROOT

API = (
    completion_create_params.CompletionCreateParamsBase.__annotations__
    | completion_create_params.CompletionCreateParamsStreaming.__annotations__
)
PLAIN = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
LOCALS = tuple(kind for kind in KINDS if kind != "openai")
BEYOND = [case["asks"] for case in cases(FIELDS).values() if not case["asks"].keys() <= API.keys()]


def fields_and_warnings(fields, kind):
    """Return the fields that these add to the upstream body, and the warnings."""

    def body(fields):
        ledger = Warnings()
        request = chat.parse_chat(json.dumps({**PLAIN, **fields}).encode()).request
        target = BodyTarget("theirs", KINDS[kind], MessagePolicy(reasoning=KINDS[kind].reasoning))
        return json.loads(DIALECTS[KINDS[kind].dialect].body(request, target, KNOWN, ledger)), ledger.entries()

    without, _ = body({})
    upstream_body, listed = body(fields)
    return {name: value for name, value in upstream_body.items() if without.get(name) != value}, listed


def for_kinds(kinds, expected):
    return dict.fromkeys(kinds, expected)


def title(fields):
    return json.dumps(fields)[:80]


def test_field_rules_cover_every_field_of_the_api_for_every_kind():
    for name, kind in KINDS.items():
        assert API.keys() - kind.fields.keys() == set(), name
    assert OPENAI.keys() == LOCAL.keys() == KNOWN == API.keys()


def test_kind_that_embeds_messages_fetches_their_images():
    assert all(kind.fetches for name, kind in KINDS.items() if ROWS[name].services.embeds_messages)


def test_kind_rows_have_positions_of_their_own_and_are_kinds_of_the_config():
    assert [row.position for row in ROWS.values()] == [*range(len(KINDS))]
    assert tuple(KINDS) == get_args(KindName)


def test_backends_page_is_generated_from_the_tables():
    assert kinds_page() == (ROOT / "docs/reference/backends.md").read_text("utf-8"), "make regenerate"


def test_logit_bias_is_sent_to_transformers_as_floats():
    upstream_body, listed = fields_and_warnings({"logit_bias": {"5": -100}}, "transformers")
    assert (repr(upstream_body), listed) == ("{'logit_bias': {'5': -100.0}}", [])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fields", [{"frequency_penalty": 0.0}, {"presence_penalty": 0}, {"logit_bias": {}}], ids=title)
def test_field_with_the_default_of_the_api_is_no_warning(fields, kind):
    """Many clients send all sampling parameters; strict mode would refuse them."""
    assert fields_and_warnings(fields, kind)[1] == []


# Fields beyond the API


@pytest.mark.parametrize("kind", KINDS)
def test_prefill_is_continued_by_the_kinds_that_can(kind):
    messages = [*PLAIN["messages"], {"role": "assistant", "content": "Hi"}]
    body = json.dumps({**PLAIN, "messages": messages, "continue_final_message": True})
    goes_on = prefill_of(chat.parse_chat(body.encode()).request, KINDS[kind])
    assert bool(goes_on) == (kind not in ("lmstudio", "transformers"))


@pytest.mark.parametrize("kind", KINDS)
def test_field_order_changes_nothing(kind):
    for fields in BEYOND:
        if fields.keys() != {"guided_json", "format"}:  # the first of these two wins
            upstream_body, listed = fields_and_warnings(dict(reversed(fields.items())), kind)
            assert (upstream_body, sorted(listed)) == (
                fields_and_warnings(fields, kind)[0],
                sorted(fields_and_warnings(fields, kind)[1]),
            )


@pytest.mark.parametrize("kind", KINDS)
def test_field_that_is_renamed_has_a_name_that_the_kind_takes(kind):
    for name in EXTENSIONS:
        match field_rule(name, KINDS[kind]):
            case RenamedRule(to=to):
                assert field_rule(to, KINDS[kind]) == PassedRule(), name
            case DroppedRule():
                assert name.partition(".")[0] not in KINDS[kind].extensions, name
            case RejectedRule() | TranslatedRule():
                assert name not in KINDS[kind].extensions, name


@pytest.mark.parametrize("kind", KINDS)
def test_field_that_is_lost_is_a_warning(kind):
    codes = {DroppedRule: "dropped", UnenforcedRule: "unenforced"}
    for name in EXTENSIONS:
        if "." not in name and (found := type(field_rule(name, KINDS[kind]))) in codes:
            assert fields_and_warnings({name: {"type": "object"}}, kind) == ({}, [f"{codes[found]}:{name}"])


# Parts of messages

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "original"}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
VIDEO = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
VIDEO_ELSEWHERE = {"type": "video_url", "video_url": {"url": "https://example.com/it.mp4"}}
CLIP = {"type": "input_video", "input_video": {"data": "AAAA"}}
NOVEL = {"type": "smell, sweet", "smell": 1}
LESS_DETAIL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "high"}}
AUDIO_URL = {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,AAAA"}}
# A part, and by kind the part that is sent instead with its warnings, or the field that is refused.
PARTS = [
    (IMAGE, {"sglang": (LESS_DETAIL, ["translated:image_url"])}),
    (LESS_DETAIL, {}),
    (AUDIO, {**for_kinds(("lmstudio", "anthropic"), "type"), "sglang": (AUDIO_URL, ["translated:input_audio"])}),
    (VIDEO, {**for_kinds(KINDS, (VIDEO, ["forwarded:video_url"])), **for_kinds(("ollama", "lmstudio", "anthropic"), "type")}),
    (VIDEO_ELSEWHERE, {**for_kinds(("ollama", "lmstudio", "anthropic"), "type"), **for_kinds(("llamacpp", "transformers"), "video_url.url"), **for_kinds(("openai", "vllm", "sglang"), (VIDEO_ELSEWHERE, ["forwarded:video_url"]))}),
    (CLIP, {**for_kinds(LOCALS, "type"), **for_kinds(("openai", "llamacpp"), (CLIP, ["forwarded:input_video"]))}),
    (NOVEL, {**for_kinds(KINDS, (NOVEL, ["forwarded:smell?sweet"])), **for_kinds(("ollama", "transformers", "anthropic"), "type")}),
]  # fmt: skip


@pytest.mark.parametrize(("part", "otherwise"), PARTS, ids=[title(part) for part, _ in PARTS])
@pytest.mark.parametrize("kind", KINDS)
def test_message_part_is_sent_as_the_kind_takes_it(part, otherwise, kind):
    fields = {"messages": [*PLAIN["messages"], {"role": "user", "content": [{"type": "text", "text": "Look."}, part]}]}
    expected = otherwise.get(kind, (part, []))
    if isinstance(expected, str):
        with pytest.raises(BadRequest) as refused:
            fields_and_warnings(fields, kind)
        problem = refused.value.problem
        assert (problem.status, problem.code) == (400, "unsupported_value")
        assert problem.param == f"messages[1].content[1].{expected}"
        return
    upstream_body, listed = fields_and_warnings(fields, kind)
    assert listed == expected[1]
    if kind == "ollama":
        assert upstream_body["messages"][1] == {"role": "user", "content": "Look.", "images": ["AAAA"]}
    elif kind == "anthropic":
        source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
        assert upstream_body["messages"][0]["content"][-1] == {"type": "image", "source": source}
    else:
        assert upstream_body["messages"][1]["content"] == [{"type": "text", "text": "Look."}, expected[0]]


def test_message_parts_of_the_api_have_a_verdict():
    types = {get_args(get_type_hints(part)["type"])[0] for part in get_args(ChatCompletionContentPartParam)}
    assert types | {"refusal", "tool_reference"} == request_fields.API.keys()  # the last is of the Messages API
