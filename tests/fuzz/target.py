"""What a target is: a check that any bytes have to pass."""

from collections.abc import Callable, Iterable
from random import Random

from msgspec import Struct, json

MOST = 64 << 10  # bytes of an input
_HEAD = 6  # bytes of it that choose


class Input(Struct, frozen=True):
    """What an input means: its first bytes choose among ways to read what follows, and how that is cut."""

    choices: bytes
    sizes: bytes
    content: bytes

    @classmethod
    def of(cls, data: bytes):
        head = data[:_HEAD].ljust(_HEAD, b"\0")
        return cls(head[:-2], head[-2:], data[_HEAD:])

    def choose(self, place, options):
        """One of the options; `place`: which of the bytes decides."""
        return options[self.choices[place] % len(options)]

    @property
    def text(self):
        return self.content.decode("utf-8", "replace")

    def cut(self, whole):
        """Pieces of two sizes in turn, of 1 to 256."""
        pieces, place, turn = [], 0, 0
        while place < len(whole):
            size = self.sizes[turn % 2] + 1
            pieces.append(whole[place : place + size])
            place, turn = place + size, turn + 1
        return pieces


def begun(content: bytes | str, *choices: int, sizes=(6, 2)) -> bytes:
    """An input with this content."""
    content = content if isinstance(content, bytes) else content.encode()
    return bytes(choice % 256 for choice in choices).ljust(_HEAD - 2, b"\0") + bytes(sizes) + content


def is_json(text: bytes | str) -> bool:
    """True, or a DecodeError."""
    json.decode(text)
    return True


class Target(Struct, frozen=True):
    """check: raises nothing, whatever the bytes are.

    seeds: inputs that it knows well.  words: that mean something in them.
    mutated: an input, changed as only somebody can who knows what is in it.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    words: Callable[[], Iterable[str]] = tuple
    mutated: Callable[[bytes, Random], bytes] | None = None
