"""Describe the typed client tools of Anthropic's API as functions that any model can call.

The client runs them: it gets each call under the name of the tool.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

ToolDefinition = dict[str, Any]
_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}
_POINT = {"type": "array", "items": _INTEGER, "minItems": 2, "maxItems": 2, "description": "x and y in pixels"}
_RANGE = {"type": "array", "items": _INTEGER, "minItems": 2, "maxItems": 2, "description": "first and last line"}


class TypedTool(Struct, frozen=True):
    """A tool that the client names by its type.

    description: for the model.  properties: those of its arguments; required: the names of required arguments.
    """

    description: str
    properties: Mapping[str, Any]
    required: tuple[str, ...] = ()

    def function(self, definition: ToolDefinition) -> ToolDefinition:
        """Return the function for a client's definition."""
        parameters = {"type": "object", "properties": self.properties, "required": [*self.required]}
        return {"name": definition["name"], "description": self._described(definition), "parameters": parameters}

    def _described(self, definition: ToolDefinition) -> str:
        """Return the description, with the size of the display if the definition has one."""
        width, height = definition.get("display_width_px"), definition.get("display_height_px")
        size = f" The display has {width} x {height} pixels." if width and height else ""
        most = definition.get("max_characters")
        return self.description + size + (f" At most {most} characters of a file are shown." if most else "")


def _one_of(*words: str) -> dict[str, Any]:
    return {"type": "string", "enum": [*words]}


_FILES = {
    "path": {"type": "string", "description": "Absolute path of the file or directory"},
    "file_text": {"type": "string", "description": "For create: the text of the file"},
    "old_str": {"type": "string", "description": "For str_replace: the text to replace, which is there once"},
    "new_str": {"type": "string", "description": "For str_replace: the text in its place"},
    "insert_line": {"type": "integer", "description": "For insert: the line after which the text goes"},
    "insert_text": {"type": "string", "description": "For insert: the text"},
    "view_range": {**_RANGE, "description": "For view: the first and the last line; -1 is the end"},
}
_EDITS = ("view", "create", "str_replace", "insert")
_EDITOR = "Views and edits text files: view, create, str_replace or insert."
_SHELL = "Runs commands in a bash shell that stays open between calls."
_POINTER = (
    "key", "type", "mouse_move", "left_click", "left_click_drag", "right_click", "middle_click", "double_click",
    "triple_click", "left_mouse_down", "left_mouse_up", "scroll", "hold_key", "wait", "screenshot", "cursor_position",
)  # fmt: skip
_SCREEN = {
    "coordinate": _POINT,
    "start_coordinate": _POINT,
    "text": {"type": "string", "description": "Text to type, or keys to press"},
    "scroll_direction": _one_of("up", "down", "left", "right"),
    "scroll_amount": _INTEGER,
    "duration": {"type": "number", "description": "Seconds"},
}


def _editor(*commands: str) -> TypedTool:
    return TypedTool(_EDITOR, {"command": _one_of(*commands), **_FILES}, ("command", "path"))


def _computer(*actions: str, **more: Any) -> TypedTool:  # noqa: ANN401 - JSON schemas
    properties = {"action": _one_of(*_POINTER, *actions), **_SCREEN, **more}
    return TypedTool("Uses the mouse and the keyboard, and takes screenshots.", properties, ("action",))


_BASH = TypedTool(
    _SHELL,
    {
        "command": {"type": "string", "description": "The command to run"},
        "restart": {"type": "boolean", "description": "Restarts the shell, instead of a command"},
    },
)
_MEMORY = TypedTool(
    "Views and edits files in the directory /memories, which outlives the conversation.",
    {
        "command": _one_of(*_EDITS, "delete", "rename"),
        **_FILES,
        "old_path": {"type": "string", "description": "For rename: the path now"},
        "new_path": {"type": "string", "description": "For rename: the path afterwards"},
    },
    ("command",),
)
TYPED_TOOLS: Mapping[str, TypedTool] = {
    "bash_20241022": _BASH,
    "bash_20250124": _BASH,
    "text_editor_20241022": _editor(*_EDITS, "undo_edit"),
    "text_editor_20250124": _editor(*_EDITS, "undo_edit"),
    "text_editor_20250429": _editor(*_EDITS),
    "text_editor_20250728": _editor(*_EDITS),
    "memory_20250818": _MEMORY,
    "computer_20241022": _computer(),
    "computer_20250124": _computer(),
    "computer_20251124": _computer("zoom", region={"type": "array", "items": _INTEGER, "minItems": 4, "maxItems": 4}),
}
