"""Stop the event loop of each test once, for a moment, as a busy machine does.  No outcome may depend on that."""

from asyncio import base_events
from contextlib import contextmanager
from random import Random

from support.wait import block

_TURNS = (30, 120)  # mean number of turns of a loop before the pause, at least and at most


class Pauses:
    """The pauses of a run.  seconds: of each; seed: moves the moments."""

    def __init__(self, seconds, seed):
        self._seconds, self._seed = seconds, seed
        self._due, self._chance, self._random = False, 0.0, Random()

    def install(self):
        """Stop event loops of asyncio from now on."""
        run_once = base_events.BaseEventLoop._run_once

        def run_once_or_pause(loop):
            if self._due and self._random.random() < self._chance:
                self._due = False
                block(self._seconds)
            return run_once(loop)

        base_events.BaseEventLoop._run_once = run_once_or_pause

    @contextmanager
    def during(self, test):
        """Stop the loop once during this test."""
        self._random = Random(f"{self._seed} {test}")
        self._due, self._chance = True, 1 / self._random.randint(*_TURNS)
        try:
            yield
        finally:
            self._due = False
