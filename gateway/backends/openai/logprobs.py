"""Log-probabilities as servers really send them, in the one shape that clients know."""

from collections.abc import Mapping
from typing import Any

from gateway.events import Logprob, TopLogprob

_LEAST = -9999.0  # stands for −∞ and NaN, which JSON cannot say


def read_logprobs(said: object, text: str, most: int | None = None) -> dict[str, tuple[Logprob, ...]]:
    """By the field they belong to, "content" or "refusal".

    text: what a bare number is about; most: other tokens per token, None: all that came.
    """
    match said:
        case {"tokens": list(tokens), **rest}:
            return {"content": _columns(tokens, rest, most)}
        case {**fields}:
            return {field: _entries(fields.get(field), most) for field in ("content", "refusal")}
        case list():
            return {"content": _entries(said, most)}
        case bool() | None:
            return {}
        case int() | float():
            return {"content": (Logprob(text, _number(said), _bytes(text)),)}
    return {}


def _entries(said: object, most: int | None) -> tuple[Logprob, ...]:
    return tuple(_entry(one, most) for one in said if isinstance(one, Mapping)) if isinstance(said, list) else ()


def _entry(said: Mapping[str, Any], most: int | None) -> Logprob:
    token = _token(said)
    return Logprob(token.token, token.logprob, token.bytes, tuple(_candidates(said.get("top_logprobs"))[:most]))


def _columns(tokens: list[Any], said: Mapping[object, Any], most: int | None) -> tuple[Logprob, ...]:
    """The shape of the legacy completions: one list per property."""
    chances, tops = said.get("token_logprobs") or [], said.get("top_logprobs") or []
    return tuple(
        Logprob(
            str(token),
            _number(chances[i] if i < len(chances) else None),
            _bytes(str(token)),
            tuple(_candidates(tops[i] if i < len(tops) else None)[:most]),
        )
        for i, token in enumerate(tokens)
    )


def _candidates(said: object) -> list[TopLogprob]:
    if isinstance(said, Mapping):  # {token: logprob}
        return [TopLogprob(str(token), _number(chance), _bytes(str(token))) for token, chance in said.items()]
    return [_token(one) for one in said if isinstance(one, Mapping)] if isinstance(said, list) else []


def _token(said: Mapping[str, Any]) -> TopLogprob:
    token = str(said.get("token", said.get("text", "")))
    raw = said.get("bytes")
    own = isinstance(raw, list) and all(isinstance(byte, int) for byte in raw)
    return TopLogprob(token, _number(said.get("logprob")), tuple(raw) if own and raw is not None else _bytes(token))


def _number(said: object) -> float:
    if isinstance(said, int | float) and not isinstance(said, bool) and said >= _LEAST:
        return float(said)
    return _LEAST


def _bytes(token: str) -> tuple[int, ...]:
    return tuple(token.encode("utf-8", "replace"))
