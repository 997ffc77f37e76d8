"""Search literals in text that comes in pieces, including a literal that has come only in part."""

import re
from bisect import bisect_right
from collections.abc import Callable, Container, Sequence
from functools import cache
from itertools import pairwise

# Tokens that models write, or servers leave, at the end of a turn.  No ordinary text ends with one.
END_TOKENS = (
    "<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|end|>",
    "<|return|>", "<|call|>", "<|end_of_role|>", "<|observation|>", "<|user|>", "<|role_sep|>", "<|message_sep|>",
    "<|END_OF_TURN_TOKEN|>", "<|end_of_msg|>", "<|endofresponse|>", "<|assistant_end|>", "<turn|>", "<end_of_turn>",
    "<eos>", "<|eos|>", "<|endofturn|>", "[|endofturn|]", "<|end_of_turn|>", "<|role_end|>", "<|EOT|>",
    "<｜end▁of▁sentence｜>", "<|im:end|>", "[unused10]", "[EOS]", "[e~[",
)  # fmt: skip
_END_WINDOW = 256  # characters at the end of a turn in which such tokens are removed
_COPIED = 1 << 20  # characters of all prefixes that are kept as copies, which is faster
_Search = Callable[..., re.Match[str] | None]
_NAMED_LINE = re.compile(r">>>[^>\n]*\n")


class _Prefixes(Container[str]):
    """The beginnings of sorted literals.  Copies of them would take the square of the length of a literal."""

    def __init__(self, literals: Sequence[str]) -> None:
        self._literals = literals

    def __contains__(self, text: object) -> bool:
        assert isinstance(text, str)
        place = bisect_right(self._literals, text)
        return place < len(self._literals) and self._literals[place].startswith(text)


class Markers:
    """A set of literals to search for.  If one literal is the beginning of another, the longer one is found."""

    def __init__(self, *literals: str) -> None:
        ordered = sorted({*literals})
        self.search: _Search = re.compile("|".join(map(re.escape, sorted(ordered, key=len, reverse=True)))).search
        self.prefixes: Container[str] = (
            _Prefixes(ordered)
            if sum(len(m) ** 2 for m in ordered) > _COPIED
            else frozenset(m[:i] for m in ordered for i in range(1, len(m)))
        )
        # literals that may become longer ones
        self.short = frozenset(one for one, other in pairwise(ordered) if other.startswith(one))
        self.first = frozenset(m[0] for m in literals)
        self.max_length = max(map(len, literals)) - 1  # of an incomplete literal

    def partial_suffix(self, text: str) -> int:
        """Return the length of the longest suffix of text that may become a marker."""
        end = text[-self.max_length :] if self.max_length else ""
        if not self.first.isdisjoint(end):
            for i in range(len(end)):
                if end[i:] in self.prefixes:
                    return len(end) - i
        return 0


class NamedLines(Markers):
    """The literals >>>NAME⏎ of these names, which may be thousands: a pattern of all of them takes a second to compile.

    names: words without `>` and line ends; no other name is found.
    """

    def __init__(self, *names: str) -> None:
        ordered = sorted(f">>>{name}\n" for name in {*names})
        self._literals = frozenset(ordered)
        self.search = self._search
        self.prefixes, self.short, self.first = _Prefixes(ordered), frozenset(), frozenset(">")
        self.max_length = max(map(len, ordered)) - 1

    def _search(self, text: str, begin: int = 0) -> re.Match[str] | None:
        found = (line for line in _NAMED_LINE.finditer(text, begin) if line[0] in self._literals)
        return next(found, None)


class EndTokens:
    """Tokens that are removed at the end of a turn, where only such tokens follow."""

    def __init__(self, *tokens: str) -> None:
        self._tokens, self._markers = tokens, Markers(*tokens)
        self.begun = frozenset([token[:2] for token in tokens])

    def is_absent_from(self, text: str) -> bool:
        """Return True if the text has no first character of a token."""
        return self._markers.first.isdisjoint(text)

    def begin(self, text: str) -> int:
        """Return the position from which the text may be nothing but tokens, the last one perhaps incomplete."""
        return min(self._before(text, len(text)), self._before(text, len(text) - self._markers.partial_suffix(text)))

    def is_complete(self, tail: str) -> bool:
        """Return True if a tail that `begin` found consists of whole tokens only."""
        return not self._before(tail, len(tail))

    def _before(self, text: str, begin: int) -> int:
        """Return the start of the tokens that end at position `begin`."""
        least = max(0, len(text) - _END_WINDOW)
        while (word := text[least:begin].rstrip()).endswith(self._tokens):
            token = next(token for token in self._tokens if word.endswith(token))
            begin = least + len(word) - len(token)
        return begin


@cache
def end_tokens(*more: str) -> EndTokens:
    """Return the tokens of all families and these.  Formats share the result, as it has hundreds of prefixes."""
    return EndTokens(*END_TOKENS, *more)


ENDS = end_tokens()
