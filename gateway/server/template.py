"""What a server gives away of a model's chat template: its text, and how it opens an answer.

Asked at most once an hour for each model, and only where nobody has said and no name tells; a server that does not
answer is one that does not know.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx
from msgspec import Struct, json

_SECONDS = 5.0  # for an answer; the first request of a model waits for it
_FRESH_SECONDS = 3600.0
_AGAIN_SECONDS = 30.0  # after which a server that could not be reached is asked again
_MOST = 256  # answers that are remembered
_QUESTION = [{"role": "user", "content": "Hello!"}]
_MARKS = str.maketrans({"Ċ": "\n", "Ġ": " ", "▁": " "})  # line ends and spaces in the names of tokens


class _Ask(Struct, frozen=True):
    """A question, with the model's name and the template's settings in it, and how to find the answer."""

    method: str
    path: str
    body: Callable[[str, Mapping[str, Any]], dict[str, Any]]
    found: Callable[[Any], object]


def _shown(said: Any) -> object:  # noqa: ANN401 - decoded JSON
    return f"{said.get('template')}{said.get('model_info', {}).get('tokenizer.chat_template', '')}"


_TEMPLATE = {
    "llamacpp": _Ask("GET", "/props", lambda model, _: {"model": model}, lambda said: said["chat_template"]),
    "ollama": _Ask("POST", "/api/show", lambda model, _: {"model": model}, _shown),
    "vllm": _Ask("GET", "/tokenizer_info", lambda model, _: {}, lambda said: said["chat_template"]),
}
_PROMPT = {
    "llamacpp": _Ask(
        "POST",
        "/apply-template",
        lambda model, settings: {"model": model, "messages": _QUESTION, "chat_template_kwargs": settings},
        lambda said: said["prompt"],
    ),
    "vllm": _Ask(
        "POST",
        "/tokenize",
        lambda model, settings: {
            "model": model,
            "messages": _QUESTION,
            "add_generation_prompt": True,
            "return_token_strs": True,
            "chat_template_kwargs": settings,
        },
        lambda said: "".join(said["token_strs"]).translate(_MARKS),
    ),
}


class Templates:
    """Of one server."""

    def __init__(self, http: httpx.AsyncClient, kind: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._http, self._kind, self._clock = http, kind, clock
        self._answers: dict[bytes, tuple[float, str | None]] = {}  # until when they hold, and what they are
        self._asking = asyncio.Lock()

    async def text(self, model: str) -> str | None:
        """The template itself; None if the server does not show it."""
        return await self._answer(_TEMPLATE.get(self._kind), model, {})

    async def prompt(self, model: str, settings: Mapping[str, Any]) -> str | None:
        """What a question becomes, up to where the answer begins; None if the server does not say."""
        return await self._answer(_PROMPT.get(self._kind), model, settings)

    async def _answer(self, ask: _Ask | None, model: str, settings: Mapping[str, Any]) -> str | None:
        if not ask:
            return None
        key = json.encode((ask.path, model, settings))
        async with self._asking:
            until, answer = self._answers.get(key, (float("-inf"), None))
            return answer if self._clock() < until else await self._learn(key, ask, ask.body(model, settings))

    async def _learn(self, key: bytes, ask: _Ask, body: dict[str, Any]) -> str | None:
        if len(self._answers) >= _MOST:
            self._answers.clear()
        seconds, answer = await self._ask(ask, body)
        self._answers[key] = self._clock() + seconds, answer
        return answer

    async def _ask(self, ask: _Ask, body: dict[str, Any]) -> tuple[float, str | None]:
        """The answer, and for how long it holds."""
        params, content = (body, None) if ask.method == "GET" else (None, body)
        try:
            answer = await self._http.request(ask.method, ask.path, params=params, json=content, timeout=_SECONDS)
        except httpx.HTTPError:
            return _AGAIN_SECONDS, None
        try:
            answer.raise_for_status()
            found = ask.found(answer.json())
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
            return _FRESH_SECONDS, None
        return _FRESH_SECONDS, found if isinstance(found, str) else None
