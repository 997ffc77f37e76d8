"""Test messages for the upstream: templates can render them, and no content is lost."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.backends import KINDS, request_fields
from gateway.backends.openai.messages import MessagePolicy, convert_messages, order_messages
from gateway.request import Request
from gateway.warnings import Warnings
from support.app import gateway
from support.conversations import assistant, result, user
from support.format_events import untraced
from support.sampling import EXAMPLES, examples
from support.upstream import HELLO, completion_body, whole

USER, SYSTEM = {"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."}
NOTHING = {"role": "user", "content": ""}
SILENT = {"role": "assistant", "content": ""}
PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
JPG = {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}}
ALTERNATE, CONTINUES = MessagePolicy(alternate=True), MessagePolicy(continues=True)
UNNAMED = "dropped:messages.name"
APART, MERGED, ANSWERED = "translated:messages.content.image_url", "translated:messages", "repaired:messages.tool_calls"


def text(text, **more):
    return {"type": "text", "text": text, **more}


def tool_images(*media, of="images"):
    return user([text(f"Tool output {of}:"), *media])


def messages_and_warnings(messages, policy=None):
    """Return the messages that the server gets, and the warnings."""
    ledger = Warnings()
    policy = policy or MessagePolicy()
    return order_messages(convert_messages(messages, policy, ledger), policy, ledger), ledger.entries()


# Plain messages

TEXTS = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "assistant", "system"]),
    st.text(),
)


@settings(max_examples=examples(8 * EXAMPLES))
@given(st.lists(TEXTS, max_size=6), st.sampled_from(list(KINDS)))
def test_messages_of_plain_text_are_not_changed(given, kind):
    request, ledger = Request(model="m", messages=(*given,)), Warnings()
    assert request.is_text_only
    assert (
        convert_messages(request_fields.convert_parts(request, KINDS[kind], ledger), MessagePolicy(names=False), ledger)
        == given
    )
    assert not ledger.entries() and not [message for message in given if message.get("tool_calls")]


@pytest.mark.parametrize(
    "message",
    [
        user(name="Ann"),
        user([{"type": "text", "text": "Hi"}]),
        user(None),
        {"role": "developer", "content": "Be brief."},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
        {"role": "assistant"},
    ],
)
def test_messages_with_more_than_text_are_not_plain(message):
    assert not Request(model="m", messages=(USER, message)).is_text_only


# Outputs of tools

OUTPUTS = {
    "texts are one": ([assistant(None, "a"), result("a", [text("x"), text("y")])], [assistant(None, "a"), result("a", "x\ny")], []),
    "images follow": (
        [assistant(None, "a"), result("a", [text("x"), PNG, text("y")])],
        [assistant(None, "a"), result("a", "x\n[image #1]\ny"), tool_images(PNG)],
        [APART],
    ),
    "images follow the last of them": (
        [assistant(None, "a", "b", "c"), result("b", [PNG, JPG]), result("c"), result("a", [PNG]), USER],
        [assistant(None, "a", "b", "c"), result("b", "[image #1]\n[image #2]"), result("c"), result("a", "[image #3]"), tool_images(PNG, JPG, PNG), USER],
        [APART],
    ),
    "each turn has its own": (
        [assistant(None, "a"), result("a", [PNG]), assistant(None, "b"), result("b", [JPG]), assistant("x")],
        [assistant(None, "a"), result("a", "[image #1]"), tool_images(PNG), assistant(None, "b"), result("b", "[image #1]"), tool_images(JPG), assistant("x")],
        [APART],
    ),
    "a reference to a tool beside an image is a text": (
        [assistant(None, "a"), result("a", [text("x"), {"type": "tool_reference", "name": "g"}, PNG])],
        [assistant(None, "a"), result("a", "x\n[tool available: g]\n[image #1]"), tool_images(PNG)],
        ["translated:tool_reference", APART],
    ),
    "what is no image is called otherwise": (
        [assistant(None, "a"), result("a", [SOUND, PNG])],
        [assistant(None, "a"), result("a", "[attachment #1]\n[image #2]"), tool_images(SOUND, PNG, of="attachments and images")],
        [APART],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTPUTS)
def test_tool_output_is_sent_as_text(case):
    given, expected, listed = OUTPUTS[case]
    assert messages_and_warnings([USER, *given]) == ([USER, *expected], listed)


REFERENCE = {"type": "tool_reference", "name": "f"}


@pytest.mark.parametrize("kind", KINDS)
def test_tool_reference_is_a_part_or_a_text(kind):
    ledger, policy = Warnings(), MessagePolicy()
    request = Request(model="m", messages=(USER, assistant(None, "a"), result("a", [REFERENCE])))
    parts = request_fields.convert_parts(request, KINDS[kind], ledger)
    sent = order_messages(convert_messages(parts, policy, ledger), policy, ledger)
    if kind in ("vllm", "sglang"):
        assert (sent[2:], ledger.entries()) == ([result("a", [REFERENCE])], [])
    else:
        assert (sent[2:], ledger.entries()) == ([result("a", "[tool available: f]")], ["translated:tool_reference"])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("ollama", "anthropic")])
async def test_tool_output_images_are_sent_for_every_kind_and_api(kind):
    url = PNG["image_url"]["url"]
    expected = ["[image #1]", [text("Tool output images:"), {"type": "image_url", "image_url": {"url": url}}]]
    async with gateway(whole(completion_body()), backend={"kind": kind}) as site:
        await site.chat(
            messages=[USER, assistant(None, "a"), result("a", [{"type": "image_url", "image_url": {"url": url}}])]
        )
        assert [one["content"] for one in site.upstream_body["messages"][2:]] == expected
        call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_image", "image_url": url}]}
        answer = await site.respond(input=[{"role": "user", "content": "Hi"}, call, output])
        assert [one["content"] for one in site.upstream_body["messages"][2:]] == expected
        assert APART in answer.headers["x-gateway-warnings"]
        use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
        source = {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]}
        block = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": source}]}
        await site.message(
            messages=[USER, {**USER, "role": "assistant", "content": [use]}, {**USER, "content": [block]}]
        )
        assert [one["content"] for one in site.upstream_body["messages"][2:]] == expected


# Assistant messages

CONVERTED = {
    "a refusal beside an image": (
        [assistant([PNG, {"type": "refusal", "refusal": "No."}])], [assistant([PNG, text("No.")])], [],
    ),
    "what a client adds to a part": ([user([text("x", cache_control={}), PNG])], [user([text("x", cache_control={}), PNG])], []),
    "marks for the prompt's cache": ([user([text("x"), {**PNG, "prompt_cache_breakpoint": {"mode": "explicit"}}])], [user([text("x"), PNG])], []),
    "sound of an old answer": ([assistant(None, audio={"id": "audio_1"})], [SILENT], ["dropped:messages.audio"]),
    "no sound": ([assistant("x", audio=None)], [assistant("x")], []),
    "no calls": ([assistant("x", tool_calls=[])], [assistant("x")], []),
    "calls without a text": ([assistant(None, "a"), result("a")], [assistant(None, "a"), result("a")], []),
    "calls without even a field for it": (
        [{name: value for name, value in assistant(None, "a").items() if name != "content"}, result("a")],
        [{name: value for name, value in assistant(None, "a").items() if name != "content"}, result("a")],
        [],
    ),
    "nothing": ([assistant([])], [SILENT], []),
    "names": ([user(name="Ann"), assistant("x", name="Bob")], [user(name="Ann"), assistant("x", name="Bob")], []),
    "sound of the user": ([user([SOUND])], [user([SOUND])], []),
    "calls that nobody answered": ([assistant(None, "a"), USER], [assistant(None, "a"), USER], []),
    "a late answer": ([assistant(None, "a"), USER, result("a")], [assistant(None, "a"), USER, result("a")], []),
    "the assistant twice": ([assistant("x"), assistant("y"), USER], [assistant("x"), assistant("y"), USER], []),
}  # fmt: skip


@pytest.mark.parametrize("case", CONVERTED)
def test_message_is_changed_to_fit_templates(case):
    given, expected, listed = CONVERTED[case]
    assert messages_and_warnings([USER, *given]) == ([USER, *expected], listed)


def test_thinking_blocks_stay_beside_the_reasoning_field():
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]
    given = assistant("x", thinking_blocks=[{**blocks[0], "index": 0}], reasoning="Hm.")
    for field in ("reasoning", "reasoning_content", "thinking"):
        expected = assistant("x", thinking_blocks=blocks, **{field: "Hm."})
        assert messages_and_warnings([given], MessagePolicy(reasoning=field)) == ([expected], [])


def test_message_fields_that_the_server_ignores_are_warnings():
    """transformers ignores past reasoning, and text beside tool calls."""
    policy, thought, text = (
        MessagePolicy(reasoning=None, calls_alone=True),
        "dropped:messages.reasoning_content",
        "dropped:messages.content",
    )
    for past, expected, listed in (
        (assistant("x", reasoning="Hm."), assistant("x"), [thought]),
        (assistant("x", "a", reasoning_content="Hm."), assistant("", "a"), [thought, text]),
        (assistant(None, "a"), assistant(None, "a"), []),
    ):
        assert messages_and_warnings([USER, past], policy) == ([USER, expected], listed)


@pytest.mark.parametrize(
    ("late", "listed"),
    [("merge", [UNNAMED, "translated:messages.role"]), ("user", ["translated:messages.role", UNNAMED]), ("keep", [])],
)
def test_message_name_lost_by_a_system_message_is_a_warning(late, listed):
    given = [{**SYSTEM, "name": "a"}, USER, {**SYSTEM, "name": "b"}]
    came, warnings = messages_and_warnings(given, MessagePolicy(late_system=late))
    assert [message.get("name") for message in came][:2] == ["a", None]
    assert sorted(warnings) == sorted(listed)
    assert messages_and_warnings([{**SYSTEM, "name": "a"}, {**SYSTEM, "name": "a"}, SYSTEM, USER])[1] == []


# Strict templates

STRICT = {
    "the user's are one": ([USER, user("you")], [user("Hi\n\nyou")], [MERGED]),
    "with what else they have": ([user(name="Ann"), user([PNG], name="Bob")], [user([text("Hi"), PNG], name="Ann")], [UNNAMED, MERGED]),
    "nothing is added to nothing": ([NOTHING, USER, user([PNG]), NOTHING], [user([text("Hi"), PNG])], [MERGED]),
    "the assistant's are one": (
        [USER, assistant("x", reasoning_content="a"), assistant(None, "c", reasoning_content="b"), result("c")],
        [USER, assistant("x", "c", reasoning_content="a\n\nb"), result("c")],
        [MERGED],
    ),
    "with their signed thoughts": (
        [USER, assistant("x", thinking_blocks=[{"type": "a"}]), assistant("y", thinking_blocks=[{"type": "b"}], prefix=False), assistant("z", prefix=True)],
        [USER, assistant("x\n\ny\n\nz", thinking_blocks=[{"type": "a"}, {"type": "b"}], prefix=True)],
        [MERGED],
    ),
    "the user begins": ([assistant("Hello!"), USER], [NOTHING, assistant("Hello!"), USER], [MERGED]),
    "behind what the system says": ([SYSTEM, assistant("Hello!")], [SYSTEM, NOTHING, assistant("Hello!")], [MERGED]),
    "the assistant has seen the outputs": (
        [USER, assistant(None, "a"), result("a"), USER], [USER, assistant(None, "a"), result("a"), SILENT, USER], [MERGED],
    ),
    "and their images": (
        [USER, assistant(None, "a"), result("a", [PNG])],
        [USER, assistant(None, "a"), result("a", "[image #1]"), SILENT, tool_images(PNG)],
        [APART, MERGED],
    ),
    "each call is answered": (
        [USER, assistant(None, "a", "b", "c"), result("b"), USER, assistant(None, "d")],
        [USER, assistant(None, "a", "b", "c"), result("b"), result("a", "[no output]"), result("c", "[no output]"), SILENT, USER, assistant(None, "d"), result("d", "[no output]")],
        [ANSWERED, MERGED],
    ),
    "what takes turns is left alone": ([SYSTEM, USER, assistant("x"), USER], [SYSTEM, USER, assistant("x"), USER], []),
    "calls in a row": (
        [USER, assistant(None, "a"), result("a"), assistant(None, "b"), result("b"), assistant("x"), USER],
        [USER, assistant(None, "a"), result("a"), assistant(None, "b"), result("b"), assistant("x"), USER],
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STRICT)
def test_messages_alternate_where_the_policy_asks(case):
    given, expected, listed = STRICT[case]
    assert messages_and_warnings(given, ALTERNATE) == (expected, listed)


def test_messages_of_a_long_run_are_merged_in_linear_time():
    n = 20_000
    ((message,), _) = messages_and_warnings([user("x" * 999)] * n, ALTERNATE)
    assert len(message["content"]) == 1001 * n - 2


# Servers that continue the last message

ENDS = {
    "one message": ([USER, assistant("x")], [USER, assistant("x")], []),
    "two of them": ([USER, assistant("x"), assistant("y")], [USER, assistant("x"), NOTHING, assistant("y")], [MERGED]),
    "calls": ([USER, assistant(None, "a", "b")], [USER, assistant(None, "a", "b"), result("a", "[no output]"), result("b", "[no output]")], [ANSWERED]),
    "calls that were answered": ([USER, assistant(None, "a"), result("a")], [USER, assistant(None, "a"), result("a")], []),
    "calls before": ([USER, assistant(None, "a"), USER], [USER, assistant(None, "a"), USER], []),
    "nothing else": ([assistant("x")], [assistant("x")], []),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
def test_messages_end_with_one_message_to_continue(case):
    given, expected, listed = ENDS[case]
    assert messages_and_warnings(given, CONTINUES) == (expected, listed)


def test_message_to_continue_is_not_merged():
    expected = [USER, assistant("x"), NOTHING, assistant("y")]
    assert messages_and_warnings(
        [USER, assistant("x"), assistant("y")], MessagePolicy(continues=True, alternate=True)
    ) == (
        expected,
        [MERGED],
    )


async def test_message_policy_comes_from_the_kind_and_the_model():
    past = [assistant("x"), assistant("y")]
    async with gateway(HELLO, backend={"kind": "llamacpp"}) as site:
        await site.chat(messages=past, stream=True)
        assert site.upstream_body["messages"] == [assistant("x"), NOTHING, assistant("y")]
    async with gateway(HELLO, model={"roles": {"alternate": True}}) as site:
        await site.chat(messages=[*past, assistant(None, "a")], stream=True)
        assert site.upstream_body["messages"] == [NOTHING, assistant("x\n\ny", "a"), result("a", "[no output]")]


# Any conversation

WORDS = st.text("αβγ", min_size=1, max_size=3)  # letters that occur nowhere else
PARTS = st.lists(st.one_of(WORDS.map(text), st.sampled_from([PNG, SOUND])), max_size=3)
CONTENT = WORDS | PARTS
TURN = st.one_of(
    st.builds(lambda role, content: [{"role": role, "content": content}], st.sampled_from(["user", "system", "developer"]), CONTENT),
    st.builds(lambda content, refusal: [assistant(content, refusal=refusal)], CONTENT | st.none(), WORDS | st.none()),
    st.builds(
        lambda contents, answered, thought: [
            assistant(None, *(str(i) for i in range(len(contents))), reasoning=thought),
            *(result(str(i), content) for i, content in enumerate(contents[:answered])),
        ],
        st.lists(CONTENT, min_size=1, max_size=3), st.integers(0, 3), WORDS,
    ),
)  # fmt: skip
POLICIES = st.builds(
    MessagePolicy,
    st.sampled_from(["system", "native"]),
    st.sampled_from(["keep", "user", "merge"]),
    st.sampled_from(["reasoning", "reasoning_content"]),
    st.booleans(),
    st.booleans(),
)


def conversation(turns):
    """Return the messages of these turns, each tool call with an id of its own."""
    return [
        json.loads(json.dumps(message).replace('"id": "', f'"id": "{i}.').replace('call_id": "', f'call_id": "{i}.'))
        for i, turn in enumerate(turns)
        for message in turn
    ]


def substance(messages):
    """Count each letter and each media type of a conversation."""
    written = json.dumps(messages, ensure_ascii=False)
    return [written.count(one) for one in ("α", "β", "γ", "image_url", "input_audio")]


@settings(max_examples=examples(8 * EXAMPLES))
@given(st.lists(TURN, min_size=1, max_size=6).map(conversation), POLICIES)
@untraced
def test_messages_lose_no_content(given, policy):
    came, _ = messages_and_warnings(given, policy)
    assert substance(came) == substance(given)
    assert all(message["content"] is not None or message["tool_calls"] for message in came)
    assert all(isinstance(message["content"], str) for message in came if message["role"] == "tool")
    again, listed = messages_and_warnings(came, policy)
    assert policy.late_system != "keep" or again == came, listed


@settings(max_examples=examples(8 * EXAMPLES))
@given(st.lists(TURN, min_size=1, max_size=6).map(conversation), st.booleans())
@untraced
def test_messages_alternate_in_any_conversation(given, continues):
    """Templates of Mistral count turns of user and assistant without messages that call tools."""
    came, _ = messages_and_warnings(given, MessagePolicy(alternate=True, continues=continues))
    turns = [
        message["role"] for message in came if message["role"] in ("user", "assistant") and "tool_calls" not in message
    ]
    assert all(role == ("user", "assistant")[i % 2] for i, role in enumerate(turns))
    before = None
    for message in came:
        assert message["role"] != before or before in {"tool", "system"}
        before = message["role"]
    ids = [call["id"] for message in came for call in message.get("tool_calls", ())]
    assert sorted(ids) == sorted(message["tool_call_id"] for message in came if message["role"] == "tool")
