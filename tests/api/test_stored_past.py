"""Test the encoded past of a chain: a backend gets the same body with it as with all the items."""

import itertools
from functools import partial
from random import Random

import pytest

from gateway.api import responses
from gateway.api.chat.schema import KNOWN
from gateway.api.responses import stored_past
from gateway.api.responses.stored_items import complete_item
from gateway.api.responses.stored_past import leaves_past
from gateway.backends import KINDS
from gateway.backends.dialects import DIALECTS
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.openai.request_body import BodyTarget
from gateway.errors import BadRequest
from gateway.request import EncodedPast, NamedFiles
from gateway.transforms import lower_request
from gateway.transforms.attachments import files_to_text
from gateway.transforms.past_messages import FileContents, convert_past
from gateway.transforms.stored_files import StoredContent, file_references, inline_stored_files
from gateway.warnings import Warnings

STORED = {"file-1": StoredContent("b.txt", b"stored"), "file-2": StoredContent("c.png", b"GIF89a")}
CONTENTS = FileContents(STORED, lambda _: ("text of a PDF", True))
extend_past = partial(stored_past.extend_past, convert=partial(convert_past, CONTENTS))
settle_history = partial(stored_past.settle_history, convert=partial(convert_past, CONTENTS))
SETTINGS = responses.ParseSettings(open=lambda _: None)
NUMBERS = itertools.count()
POLICIES = [
    MessagePolicy(),
    MessagePolicy(developer="native", late_system="keep"),
    MessagePolicy(late_system="merge", continues=True),
    MessagePolicy(alternate=True),
]


def stored(**item):
    return complete_item(item, lambda prefix: f"{prefix}{next(NUMBERS)}")


def message(role, content):
    return stored(role=role, content=content)


USER, ASSISTANT = message("user", "Hi"), message("assistant", "Hello")
THOUGHT = stored(type="reasoning", summary=[{"type": "summary_text", "text": "Hm."}])
CALL = stored(type="function_call", call_id="c", name="f", arguments="{}")
OUTPUT = stored(type="function_call_output", call_id="c", output="1")

TEXTS = ["", "Hi", 'é"\\\n', "\0", "data:,", "<think>", "𝄞"]
ROLES = ["user", "assistant", "system", "developer"]
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}
URL = {"type": "input_image", "image_url": "https://a.example/b.png"}
FILE = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,YQ=="}
PDF = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}
NAMED, NAMED_IMAGE = {"type": "input_file", "file_id": "file-1"}, {"type": "input_image", "file_id": "file-2"}
PARTS = [IMAGE, URL, FILE, PDF, NAMED, NAMED_IMAGE]


def call(**more):
    return stored(
        type="function_call", **{"call_id": f"c{next(NUMBERS)}", "name": "f", "arguments": '{"a": 1}', **more}
    )


def custom_call(**more):
    return stored(type="custom_tool_call", **{"call_id": f"c{next(NUMBERS)}", "name": "g", "input": "é\n", **more})


def output(of, text="1"):
    return stored(type=f"{of['type']}_output", call_id=of["call_id"], output=text)


def random_calls(random):
    """Return the items of tool calls, sometimes after a thought or a text."""
    calls = [random.choice([call, custom_call])() for _ in range(random.choice([1, 1, 2]))]
    first = random.choice([[], [], [THOUGHT], [message("assistant", random.choice(TEXTS))]])
    return [*first, *calls, *(output(one, random.choice(TEXTS)) for one in calls)]


def random_content(random):
    texts = [{"type": "input_text", "text": random.choice(TEXTS)} for _ in range(2)]
    part = random.choice(PARTS)
    return random.choice([random.choice(TEXTS), random.choice(TEXTS), texts, [part], [texts[0], part]])


def random_turn(random):
    """Return the items of a turn: messages of the user, sometimes thoughts and tool calls, messages of the assistant."""
    users = [message("user", random_content(random)) for _ in range(random.choice([1, 1, 2]))]
    answers = [message("assistant", random.choice(TEXTS)) for _ in range(random.choice([1, 1, 2]))]
    calls = [item for _ in range(random.choice([0, 0, 1, 3])) for item in random_calls(random)]
    return [*users, *calls, *random.choice([[], [THOUGHT]]), *answers]


def random_input(random):
    if random.random() < 0.3:
        return random.choice(TEXTS)
    later = [{"role": random.choice(ROLES), "content": random.choice(TEXTS)} for _ in range(random.randrange(4))]
    return [{"role": "user", "content": random.choice(TEXTS)}, *later]


def without_files(request, ledger):
    """Return the request with the text of its files, as the gateway reads them."""
    if references := file_references(request):
        ledger.add("translated", "file_id")
        request = inline_stored_files(request, references, STORED)
    request, outcomes = files_to_text(request, CONTENTS.pdf)
    for outcome in sorted(outcomes):
        ledger.add(outcome, "file")
    return request


def body_and_warnings(context, kind, policy, input, fields):
    """Return the body for a backend, with the warnings about it; or its error."""
    ledger, dialect = Warnings(), DIALECTS[kind.dialect]
    body = {"model": "m", "input": input, **fields}
    draft = responses.draft_response(body, SETTINGS)
    try:
        whole = responses.parse_response(draft, context, SETTINGS, ledger).request
        whole = without_files(whole, ledger)
        whole = dialect.fit_past(whole, whole.past, kind, policy) if whole.past else whole
        request, _ = lower_request(whole, ledger)
        return dialect.body(request, BodyTarget("u", kind, policy), KNOWN, ledger), {*ledger.entries()}
    except BadRequest as error:
        return error.problem


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["vllm", "sglang", "transformers", "ollama", "anthropic"])
def test_past_of_a_chain_gives_the_backend_the_same_body_as_its_items(kind, policy, seed):
    random = Random(seed)
    for _ in range(5):
        leading = [message(random.choice(ROLES[2:]), random.choice(TEXTS)) for _ in range(random.randrange(3))]
        turns = [random_turn(random) for _ in range(random.randrange(1, 5))]
        past = extend_past(None, [*leading, *turns[0]])
        for turn in turns[1:]:
            past = extend_past(past, turn)
        how = KINDS[kind], policy, random_input(random), random.choice([{}, {"instructions": "Be brief."}])
        items = [*leading, *itertools.chain.from_iterable(turns)]
        expected = body_and_warnings(responses.InputContext(items), *how)
        assert body_and_warnings(responses.InputContext(past=past), *how) == expected


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("policy", POLICIES)
def test_agent_that_sends_outputs_only_gets_the_body_of_all_items_each_time(policy, seed):
    random, items, before, new, waiting, settled = Random(seed), [], None, [], [], 0
    for _ in range(30):
        given = [output(one) for one in waiting] or [message("user", random_content(random))]
        sent = [{name: value for name, value in one.items() if name not in {"id", "status"}} for one in given]
        how = KINDS["vllm"], policy, sent, {}
        expected = body_and_warnings(responses.InputContext(items), *how)
        if found := settle_history(before, new, sent):
            assert body_and_warnings(responses.InputContext(found.open, past=found.past), *how) == expected
            before, new, settled = found.past, [*found.open], settled + 1
        else:
            before, new = None, [*items]
        waiting = [random.choice([call, custom_call])() for _ in range(random.choice([0, 1, 1, 2]))]
        answer = random.choice([[], [], [THOUGHT], [message("assistant", "Well")]]) if waiting else [ASSISTANT]
        items, new = [*items, *given, *answer, *waiting], [*new, *given, *answer, *waiting]
    assert settled > 10


def test_past_has_the_size_and_the_warnings_of_its_messages():
    past = extend_past(extend_past(None, [USER, THOUGHT, ASSISTANT]), [USER, THOUGHT, ASSISTANT])
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}] * 2
    assert past.decoded() == messages and past.alternates
    assert past.characters == sum(len(text) for message in messages for text in message.values())
    assert past.warnings == ("dropped:input.reasoning",)
    assert extend_past(past, []) is past
    assert past.size == len(past.messages) + 2
    called = extend_past(None, [USER, CALL, OUTPUT, ASSISTANT])
    assert called.call_ids == {"c"} and called.size > len(called.messages) * 1.5


BROKEN = {"type": "input_image", "image_url": "data:image/png;base64,?"}


@pytest.mark.parametrize(
    "items",
    [
        [message("system", "Be brief.")],
        [USER, message("system", "Be brief."), ASSISTANT],
        [USER, message("developer", "Be brief."), ASSISTANT],
        *(
            [message("user", [part]), ASSISTANT]
            for part in (
                {"type": "input_file", "file_url": "https://a.example/b.txt"},
                {"type": "input_file", "file_url": "a.txt"},
                {"type": "input_file", "file_data": "?"},
                {"type": "input_file", "file_id": "file-3"},
                {"type": "input_image", "file_id": "file-1"},
                {"type": "input_image", "file_id": "file-3"},
                {"type": "input_image", "image_url": "file:///a.png"},
                BROKEN,
            )
        ),
        [USER, CALL, ASSISTANT],
        [USER, OUTPUT, ASSISTANT],
        [USER, call(arguments="{"), ASSISTANT],
        [USER, call(call_id="c", arguments="1"), OUTPUT, ASSISTANT],
        [USER, call(call_id="c", namespace="n"), OUTPUT, ASSISTANT],
        [USER, CALL, stored(**{**OUTPUT, "output": [URL]}), ASSISTANT],
        [USER, (custom := custom_call(namespace="n")), output(custom), ASSISTANT],
        [USER, custom_call(), ASSISTANT],
        [USER, (shell := stored(type="local_shell_call", call_id="c", action={})), output(shell), ASSISTANT],
    ],
)
@pytest.mark.parametrize("before", [None, EncodedPast(b'{"role":"assistant","content":"Hello"}', 14, True)])
def test_past_that_later_items_or_backends_may_change_is_not_encoded(before, items):
    assert extend_past(before, items) is None


def test_past_begins_with_the_user_and_a_message_of_the_user_follows_it():
    past = extend_past(None, [USER, ASSISTANT])
    assert extend_past(None, [ASSISTANT]) is extend_past(None, []) is extend_past(past, [ASSISTANT]) is None
    assert settle_history(past, [CALL], [OUTPUT]) is None  # a turn that was not stored has settled the past


def test_output_of_a_settled_tool_call_needs_all_items():
    items = [USER, CALL, OUTPUT, (other := call())]
    assert settle_history(None, items, [output(other)]).open == [other]
    assert settle_history(None, items, [OUTPUT]) is None
    assert settle_history(None, [*items, OUTPUT], [output(other)]) is None


def test_reasoning_behind_the_last_user_message_stays_open():
    items = [USER, ASSISTANT, USER, CALL, OUTPUT, THOUGHT, (other := call()), output(other), (last := call())]
    found = settle_history(None, items, [output(last)])
    assert found.open == items[5:] and not found.past.before_user
    assert settle_history(None, [USER, THOUGHT, CALL], [OUTPUT]) is None


@pytest.mark.parametrize(
    ("leaves", "body"),
    [
        (True, {"input": "Hi"}),
        (True, {"input": [{"role": "user", "content": "Hi"}, {"type": "message", "role": "system", "content": ""}]}),
        (False, {}),
        (False, {"input": []}),
        (False, {"input": "Hi", "reasoning": {"context": "all_turns"}}),
        (False, {"input": [{"role": "assistant", "content": "Hi"}]}),
        (False, {"input": [{"role": "user", "content": "Hi", "id": "msg_1"}]}),
        (False, {"input": [{"role": "user", "content": "Hi"}, {"type": "item_reference", "id": "msg_1"}]}),
        (True, {"input": [OUTPUT, {"role": "user", "content": "Hi"}]}),
        (False, {"input": [CALL, OUTPUT]}),
        (False, {"input": [{"type": "message"}]}),
        (False, {"input": ["Hi"]}),
    ],
)
def test_input_leaves_the_past_if_it_is_new_messages_only(leaves, body):
    assert leaves_past(body) is leaves


def test_request_without_a_past_has_all_messages_already():
    request = responses.parse_response(
        responses.draft_response({"model": "m", "input": "Hi"}, SETTINGS),
        responses.InputContext(),
        SETTINGS,
        Warnings(),
    ).request
    assert request.with_whole_past() is request


def test_past_names_the_stored_files_of_its_messages():
    turn = [message("user", [NAMED, NAMED, NAMED_IMAGE]), ASSISTANT]
    past = extend_past(extend_past(extend_past(None, turn), turn), [USER, ASSISTANT])
    assert past.files == NamedFiles(frozenset(STORED), {"file": 24, "image_url": 12})
    assert past.warnings == ("translated:file_id", "translated:file")


def test_past_with_an_unknown_pdf_is_not_encoded():
    convert = partial(convert_past, FileContents())
    assert stored_past.extend_past(None, [message("user", [FILE]), ASSISTANT], convert)
    assert stored_past.extend_past(None, [message("user", [PDF]), ASSISTANT], convert) is None


def test_past_with_files_is_not_encoded_where_none_are_read():
    convert = partial(convert_past, None)
    assert stored_past.extend_past(None, [message("user", [IMAGE]), ASSISTANT], convert)
    assert stored_past.extend_past(None, [message("user", [FILE]), ASSISTANT], convert) is None
