"""Test the encoded past of a chain: a backend gets the same body with it as with all the items."""

import itertools
from random import Random

import pytest

from gateway.api import responses
from gateway.api.chat.schema import KNOWN
from gateway.api.responses.stored_items import complete_item
from gateway.api.responses.stored_past import extend_past, leaves_past
from gateway.backends import KINDS
from gateway.backends.dialects import DIALECTS
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.openai.request_body import BodyTarget
from gateway.request import EncodedPast
from gateway.warnings import Warnings

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
PARTS = message("user", [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}])
CALL = stored(type="function_call", call_id="c", name="f", arguments="{}")
OUTPUT = stored(type="function_call_output", call_id="c", output="1")

TEXTS = ["", "Hi", 'é"\\\n', "\0", "data:,", "<think>", "𝄞"]
ROLES = ["user", "assistant", "system", "developer"]


def random_turn(random):
    """Return the items of a turn: messages of the user, sometimes a thought, messages of the assistant."""
    users, answers = (
        [message(role, random.choice(TEXTS)) for _ in range(random.choice([1, 1, 2]))] for role in ("user", "assistant")
    )
    return [*users, *random.choice([[], [THOUGHT]]), *answers]


def random_input(random):
    if random.random() < 0.3:
        return random.choice(TEXTS)
    later = [{"role": random.choice(ROLES), "content": random.choice(TEXTS)} for _ in range(random.randrange(4))]
    return [{"role": "user", "content": random.choice(TEXTS)}, *later]


def body_and_warnings(context, dialect, policy, input, fields):
    """Return the body for a backend, with the warnings about it."""
    ledger = Warnings()
    body = {"model": "m", "input": input, **fields}
    draft = responses.draft_response(body, SETTINGS)
    request = DIALECTS[dialect].fit_past(responses.parse_response(draft, context, SETTINGS, ledger).request, policy)
    kind = next(kind for kind in KINDS.values() if kind.dialect == dialect)
    return DIALECTS[dialect].body(request, BodyTarget("u", kind, policy), KNOWN, ledger), ledger.entries()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_past_of_a_chain_gives_the_backend_the_same_body_as_its_items(dialect, policy, seed):
    random = Random(seed)
    for _ in range(5):
        leading = [message(random.choice(ROLES[2:]), random.choice(TEXTS)) for _ in range(random.randrange(3))]
        turns = [random_turn(random) for _ in range(random.randrange(1, 5))]
        past = extend_past(None, [*leading, *turns[0]])
        for turn in turns[1:]:
            past = extend_past(past, turn)
        how = dialect, policy, random_input(random), random.choice([{}, {"instructions": "Be brief."}])
        items = [*leading, *itertools.chain.from_iterable(turns)]
        expected = body_and_warnings(responses.InputContext(items), *how)
        assert body_and_warnings(responses.InputContext(past=past), *how) == expected


def test_past_has_the_size_and_the_warnings_of_its_messages():
    past = extend_past(extend_past(None, [USER, THOUGHT, ASSISTANT]), [USER, THOUGHT, ASSISTANT])
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}] * 2
    assert past.decoded() == messages and past.alternates
    assert past.characters == sum(len(text) for message in messages for text in message.values())
    assert past.warnings == ("dropped:input.reasoning",)
    assert extend_past(past, []) is past


@pytest.mark.parametrize(
    "items",
    [
        [],
        [USER],
        [ASSISTANT],
        [message("system", "Be brief.")],
        [USER, message("system", "Be brief."), ASSISTANT],
        [USER, message("developer", "Be brief."), ASSISTANT],
        [PARTS, ASSISTANT],
        [USER, CALL, OUTPUT, ASSISTANT],
    ],
)
@pytest.mark.parametrize("before", [None, EncodedPast(b'{"role":"assistant","content":"Hello"}', 14, True)])
def test_past_that_later_items_or_backends_may_change_is_not_encoded(before, items):
    assert extend_past(before, items) == (before if not items else None)


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
        (False, {"input": [OUTPUT]}),
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
