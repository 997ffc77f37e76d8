"""Define the type of a row in the table of formats."""

from typing import Literal

from msgspec import Struct

from gateway.formats.markup import Markup
from gateway.formats.parser import Format

# The form of a tool call id: call_ and random characters, nine letters and digits, or functions.NAME:n.
IdForm = Literal["call", "nine", "counted"]


class FormatSpec(Struct, frozen=True, kw_only=True):
    """A format.  Its name is its key in the table; this row has everything else.

    parse: the parser; None if text is never parsed.
    families: the model families that use the format.
    example: a response in this format, with the call get_weather(city="Paris", days=3) if the format has calls.
    first: the texts that identify the format when a response begins with one and nothing else is known of the model.
    aliases: the names of the format in other servers.
    special: the tags are special tokens, which servers remove from the text unless the request says otherwise.
    signs: a chat template that has all of these texts uses this format.
    differs: the cases in which other engines read the same text differently, and the reason for the reading here.
    ids: the form of call ids that the chat templates of the family accept; `call` stands for any.
    """

    parse: Format | None
    families: str
    example: str
    first: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    special: bool = False
    signs: tuple[str, ...] = ()
    differs: str = ""
    ids: IdForm = "call"

    @property
    def thinks(self) -> bool:
        """Return True if the families write reasoning between tags, as in the example."""
        return isinstance(self.parse, Markup) and any(tag.strip() in self.example for tag in self.parse.thoughts)
