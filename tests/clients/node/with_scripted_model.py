"""openai-node over a scripted backend: endpoints that are passed on, embeddings, files and batches."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from checks import run
from program import ROOT, ran

from support.app import Site, listening
from support.upstream import CLOSE, END, HANG, HELLO, head, whole
from support.wait import until

IMAGE = {"created": 1, "data": [{"b64_json": "AAAA"}]}
HARM = {"id": "modr_1", "model": "m", "results": [{"flagged": False, "categories": {}, "category_scores": {}}]}
SPEECH = head(type="audio/mpeg")


def event(**members: str) -> bytes:
    """Return a frame of an event."""
    return f"data: {json.dumps(members)}\n\n".encode()


DELTA = event(type="transcript.text.delta", delta="Hel")
FINAL = event(type="transcript.text.done", text="Hello")
SCRIPTS: dict[str, list[Any]] = {
    "whole": [whole({"text": "Hello"}), [SPEECH, b"ID3", b"abc", END], whole(IMAGE), whole(IMAGE), whole(HARM)],
    "embeddings": [
        whole({"data": [{"embedding": "AAAAPwAAgD8="}]}),
        whole({"data": [{"embedding": [[0.5, 1], [2, 3]]}]}),
    ],
    "streamed": [[head(), DELTA, FINAL, END]],
    "failure": [[head(), DELTA, CLOSE]],
    "abort": [[head(), DELTA, HANG]],
    "incomplete": [[SPEECH, b"ID3", CLOSE]],
    "batch": [HELLO],
}


def check(name: str) -> Callable[[str], Any]:
    """Return the check of this name, which with_scripted_backend.mjs has."""

    async def ask(_: str) -> None:
        served: AbstractAsyncContextManager[Site] = listening(*SCRIPTS[name])
        async with served as site:
            url = f"{site.client.base_url}/v1"
            done = await ran(*sys.argv[1:], url, name, folder=ROOT, environment=os.environ)
            assert done == (0, "", ""), done
            await until(lambda: site.app.state.directory.backends["up"].limiter.queue.active, 0)

    ask.__name__ = name
    return ask


if __name__ == "__main__":
    assert Path(sys.argv[1]).exists(), sys.argv
    run("openai-node, a scripted backend", {}, [*map(check, SCRIPTS)], models=("m",))
