"""List the members of each type of content block, and report unknown ones: no part of a prompt is lost unsaid."""

from collections.abc import Mapping, Set

from gateway.warnings import Warnings

# Results of tools on the server's side; True: third parties wrote the text.
SERVER_RESULTS: Mapping[str, bool] = {
    "web_search_tool_result": True,
    "web_fetch_tool_result": True,
    "mcp_tool_result": False,
    "tool_search_tool_result": False,
    "code_execution_tool_result": False,
    "bash_code_execution_tool_result": False,
    "text_editor_code_execution_tool_result": False,
    "advisor_tool_result": False,
}
_SHARED = frozenset(("type", "cache_control"))
_CALL = ("id", "name", "input", "caller", "toolset_name")
# Those that the gateway reads, and those without an effect on a local model.
_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "citations", "parsed_output"),
    "image": ("source", "transformations"),
    "document": ("source", "title", "context", "citations"),
    "search_result": ("source", "title", "content", "citations"),
    "container_upload": ("file_id",),
    "tool_reference": ("tool_name",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_use": _CALL,
    "server_tool_use": _CALL,
    "mcp_tool_use": (*_CALL, "server_name"),
    "tool_result": ("tool_use_id", "content", "is_error", "toolset_name"),
    **dict.fromkeys(SERVER_RESULTS, ("tool_use_id", "content", "is_error", "caller")),
    "compaction": ("content", "encrypted_content", "signature"),
    "tool_addition": ("tool",),
    "tool_removal": ("tool",),
}
_KNOWN = {type: _SHARED.union(members) for type, members in _MEMBERS.items()}


def report_unknown_members(block: Mapping[str, object], ledger: Warnings) -> None:
    """Warn about the members that the type of a block lacks; blocks of other types go to the model as a whole."""
    type = str(block["type"])
    if known := _KNOWN.get(type):
        report_unknown(block, known, type, ledger)


def report_unknown(members: Mapping[str, object], known: Set[str], owner: str, ledger: Warnings) -> None:
    """Warn about members with a value that are not known.  owner: the object that the client put them into."""
    if members.keys() <= known:
        return
    for name, value in members.items():
        if name not in known and value is not None:
            ledger.add("dropped", f"{owner}.{name}")
