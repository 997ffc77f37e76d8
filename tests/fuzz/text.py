"""What a model writes, in every format: the same under every cut, in order, and without losing a word."""

import json
import re

from fuzz.target import Input, Target, begun
from gateway.formats import FORMATS
from gateway.formats.markers import END_TOKENS
from gateway.formats.parser import ParseContext
from gateway.warnings import Warnings
from support.format_events import calls, text_events, written
from support.format_literals import literals
from support.paths import TESTS
from support.pipeline import TOOLS, grammatical

CASES = TESTS / "formats" / "cases"
NAMES = sorted(FORMATS)
_OURS = re.compile(r"(?<=\n)word(\d{5})end(?=\n)")
_CONTEXTS = [
    ParseContext(tools, thought_open, in_thought, forced)
    for tools in (TOOLS, {})
    for thought_open in (False, True)
    for in_thought in (None, "end", "text", "last")
    for forced in (None, "", "f")
]


def check(data):
    given = Input.of(data)
    how = given.choose(0, NAMES), given.choose(1, _CONTEXTS), given.choose(2, ("stop", "length"))
    text = given.text
    if given.choose(3, (False, True)):
        text = _with_words(given.cut(text))
    ledger, again = Warnings(), Warnings()
    whole = text_events([text], *how, ledger)
    assert grammatical(whole)
    assert text_events(given.cut(text), *how, again) == whole
    assert again.entries() == ledger.entries()
    if how[2] == "stop" and not any(entry.startswith("dropped:") for entry in ledger.entries()):
        kept = "".join(part for event in written(whole) for part in event[1:])
        lost = {int(number) for number in _OURS.findall(text) if f"word{number}end" not in kept}
        # A call that goes wrong in a key ends there, without it.
        assert len([number for number in lost if number - 1 not in lost]) <= len(calls(written(whole)))


def _with_words(pieces):
    """Words of ours between the pieces, that must not be lost."""
    return "".join(f"{piece}\nword{number:05}end\n" for number, piece in enumerate(pieces))


def seeds():
    for path in sorted(CASES.glob("*.json")):
        for case in json.loads(path.read_text("utf-8")):
            length = case.get("finish", "stop") == "length"
            context = 12 if case.get("thought") == "open" else 0
            yield begun(case["text"], NAMES.index(path.stem), context, length)
    for place, name in enumerate(NAMES):
        yield begun(FORMATS[name].example, place, 0, 0, 1, sizes=(40, 60))


def words():
    return sorted({*END_TOKENS, *(literal for name in NAMES for literal in literals(name))})


TARGETS = {"formats": Target(check, seeds, words)}
