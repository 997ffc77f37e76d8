"""A case: a question, and what has to hold of its answer, whoever gives it."""

from collections.abc import Callable
from typing import NamedTuple

from wire.answer import Answer
from wire.gate import MODEL, Question
from wire.server import Ability

WHOLE, STREAMED = False, True
STRICT = (("x-gateway-strict", "1"),)
CASES = []


class Case(NamedTuple):
    """holds: asserts it of an answer.  needs: what the server has to be able to do for it.

    ways: WHOLE and STREAMED; both mean the same, unless they vary.
    """

    name: str
    question: Question
    holds: Callable[[Answer], None]
    needs: tuple[Ability, ...] = ()
    ways: tuple[bool, ...] = (WHOLE, STREAMED)
    varies: bool = False

    def __str__(self):
        return self.name

    def check(self, gate):
        """Put the question in all ways; a server that cannot do what it needs has to say so."""
        lacks = [gate.server.cannot[need] for need in self.needs if need in gate.server.cannot]
        answers = [gate.ask(gate.server.fitting(self.question), way) for way in self.ways]
        for answer in answers:
            try:
                (lacks[0].check if lacks else self.holds)(answer)
            except AssertionError as error:
                error.add_note(repr(answer))
                raise
        if not lacks and not self.varies and answers[0].status == 200:
            assert all(answer.meant == answers[0].meant for answer in answers[1:])


def chat(*messages, name="", needs=(), ways=(WHOLE, STREAMED), varies=False, headers=(), **fields):
    """Decorates what has to hold of a chat completion, at temperature 0: it becomes a case."""
    fields = {"model": MODEL, "messages": list(messages), "temperature": 0, "max_tokens": 24, **fields}
    return _case(Question("/v1/chat/completions", fields, None, headers), name, needs, ways, varies)


def respond(input, *, name="", needs=(), ways=(WHOLE, STREAMED), varies=False, headers=(), **fields):
    """Likewise of a response; none is stored."""
    fields = {"model": MODEL, "input": input, "temperature": 0, "max_output_tokens": 24, "store": False, **fields}
    return _case(Question("/v1/responses", fields, None, headers), name, needs, ways, varies)


def call_messages(*messages, name="", needs=(), ways=(WHOLE, STREAMED), varies=False, headers=(), **fields):
    """Likewise of a message."""
    fields = {"model": MODEL, "messages": list(messages), "temperature": 0, "max_tokens": 24, **fields}
    return _case(Question("/v1/messages", fields, None, headers), name, needs, ways, varies)


def post(path, *, raw=None, name="", needs=(), ways=(WHOLE,), **fields):
    """Likewise of any POST; `raw`: its body as it is."""
    return _case(Question(path, {"model": MODEL, **fields}, raw), name, needs, ways, varies=True)


def get(path, *, name="", needs=(), headers=()):
    """Likewise of a GET."""
    return _case(Question(path, {}, None, headers, "GET"), name, needs, (WHOLE,), varies=True)


def _case(question, name, needs, ways, varies):
    def add(holds):
        CASES.append(Case(name or holds.__name__, question, holds, needs, ways, varies))
        return holds

    return add
