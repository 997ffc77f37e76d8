"""Test what becomes of a call inside a thought, which is held until it is known what it is."""

from gateway.formats.parser import ParseContext
from gateway.formats.reader import TextReader
from gateway.formats.reasoning_calls import HeldOutput


class Emit:
    """Keeps what is put into it."""

    def __init__(self):
        self.formats = []

    def note_unread(self, format):
        self.formats.append(format)


def test_held_call_that_no_format_reads_is_reported_if_it_counts():
    emit = Emit()
    held = HeldOutput(emit, TextReader(), ParseContext({}), (), apart=False)
    held.note_unread("pythonic")
    assert emit.formats == []
    held.count()
    assert emit.formats == ["pythonic"]
