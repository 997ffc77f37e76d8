"""Define the type of a row in the table of formats."""

from typing import Literal

from msgspec import Struct

from gateway.formats.markup import Markup
from gateway.formats.parser import Format

# What the id of a call looks like: call_ and random characters, nine letters and digits, or functions.NAME:n.
IdForm = Literal["call", "nine", "counted"]


class FormatSpec(Struct, frozen=True, kw_only=True):
    """A format.  Its name is its key in a table; what stands here is all that anybody has to know of it.

    parse: None where text is just text.
    families: the models that write so.
    example: an answer as such a model writes it, with get_weather(city="Paris", days=3) in it where it has calls.
    first: what tells this format where an answer begins with it and nothing else is known of the model.
    aliases: the names that other servers have for it.
    special: its tags are special tokens, which servers leave out of the text unless they are told not to.
    signs: if a chat template has all of these, it is of this format.
    differs: where the engines read the same text in another way, and why it is read so here.
    ids: the form of ids that the family's templates take back; call: any.
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
        """True if the families think between tags, as the example shows."""
        return isinstance(self.parse, Markup) and any(tag.strip() in self.example for tag in self.parse.thoughts)
