"""What a client asked, in neutral terms: chat completions, without what only an endpoint cares for."""

from typing import Any, Literal

from msgspec import Struct

Message = dict[str, Any]


class Tool(Struct, frozen=True):
    """A tool the client offers.  `definition` is the object that names the kind: {"name": …, "parameters": …}."""

    name: str
    definition: dict[str, Any]
    kind: Literal["function", "custom"] = "function"


class Named(Struct, frozen=True):
    """A tool_choice that forces one tool."""

    name: str


ToolChoice = Literal["none", "auto", "required"] | Named


class Request(Struct, frozen=True, kw_only=True):
    """One question to a model.

    tool_choice: None where the client said nothing.
    max_tokens: of the answer, reasoning included; None: no limit was given.
    rest: every other field, known or not, as it came; null was left out.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    max_tokens: int | None = None
    n: int = 1
    stream: bool = False
    rest: dict[str, Any] = {}

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The tools that may be called: none of them where the client forbade it."""
        return () if self.tool_choice == "none" else self.tools
