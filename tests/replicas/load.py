"""Steady load by the SDK: whole answers and streams of both APIs, chains and background responses, none tried again."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import openai

from soak.mock import BODIES
from support.wait import idle

ASK = "@@text 0.05@@"  # a stream takes 0.7 s, a whole answer 0.25
OUTPUT_TEXT = "".join(f"word {number} " for number in range(10))
WHOLE = BODIES["text"]["choices"][0]["message"]["content"]
_CLIENTS = 2  # that ask for each way at a time
_FAILURES = (openai.OpenAIError, AssertionError)


async def _chat(ai):
    answer = await ai.chat.completions.create(model="m", messages=[{"role": "user", "content": ASK}])
    assert answer.choices[0].message.content == WHOLE, answer


async def _quick(ai):
    """So often that some request always comes just then."""
    answer = await ai.chat.completions.create(model="m", messages=[{"role": "user", "content": "@@text 0@@"}])
    assert answer.choices[0].message.content == WHOLE, answer


async def _chat_stream(ai):
    stream = await ai.chat.completions.create(model="m", messages=[{"role": "user", "content": ASK}], stream=True)
    texts = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    assert "".join(texts) == OUTPUT_TEXT, texts


async def _chain(ai):
    """Each response goes on from one that the other replica may have stored."""
    previous = openai.omit
    for _ in range(3):
        response = await ai.responses.create(model="m", input=ASK, previous_response_id=previous)
        assert response.output_text == WHOLE, response
        previous = response.id


async def _response_stream(ai):
    stream = await ai.responses.create(model="m", input=ASK, stream=True)
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == [*range(len(events))]
    assert events[-1].type == "response.completed" and events[-1].response.output_text == OUTPUT_TEXT, events[-1]


async def _background(ai):
    response = await ai.responses.create(model="m", input=ASK, background=True)
    while response.status in ("queued", "in_progress"):
        await idle(0.1)
        response = await ai.responses.retrieve(response.id)
    assert response.output_text == OUTPUT_TEXT, response


_WAYS = {
    "chat": _chat,
    "quick": _quick,
    "chat stream": _chat_stream,
    "chain": _chain,
    "response stream": _response_stream,
    "background": _background,
}


class Load:
    """answered: how many, by way; failed: what each failure said."""

    def __init__(self, ai):
        self._ai, self.answered, self.failed = ai, Counter(), []
        self._stopped = False

    @asynccontextmanager
    async def running(self):
        """All that has begun comes to its end."""
        async with asyncio.TaskGroup() as clients:
            for way in [*_WAYS] * _CLIENTS:
                clients.create_task(self._ask(way))
            try:
                yield self
            finally:
                self._stopped = True

    async def _ask(self, way):
        while not self._stopped:
            try:
                await _WAYS[way](self._ai)
            except _FAILURES as failure:
                self.failed.append(f"{way}: {failure!r}"[:300])
            else:
                self.answered[way] += 1

    def is_well(self):
        assert not self.failed, f"{len(self.failed)} of {self.answered.total() + len(self.failed)}: {self.failed[:5]}"
        assert {*self.answered} == {*_WAYS}
