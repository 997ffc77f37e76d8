"""Test input items: the messages that each type of item and part becomes, what is joined, and what is refused.

https://platform.openai.com/docs/api-reference/responses/create
"""

import json
import sys
from typing import Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseInputItemParam

from gateway import config
from gateway.api.responses import history
from gateway.api.responses.input_items import ITEMS, HistoryRules, read_excerpt, read_input
from gateway.backends import KINDS
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.openai.request_body import BodyTarget, chat_body, prefill_of
from gateway.errors import BadRequest
from gateway.formats import FORMATS
from gateway.request import Request
from gateway.transforms import lower_request
from gateway.warnings import Warnings
from support.conversations import BLOCK, CONVERSATIONS, REDACTED, SEALED, conversation
from support.format_events import untraced

PNG = "data:image/png;base64,iVBORw0KGgo="
USER = {"role": "user", "content": "Hi"}
SYSTEM = {"role": "system", "content": "Be brief."}


def messages_of(input, **options):
    """Return the messages of an input, and the warnings."""
    ledger = Warnings()
    return [*conversation(input, ledger=ledger, **options).messages], ledger.entries()


# Items in their shortest form


def fc(id, /, name="f", arguments="{}", **more):
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments, **more}


def out(id, /, output="ok", **more):
    return {"type": "function_call_output", "call_id": id, "output": output, **more}


def assistant_message(content, **more):
    return {"type": "message", "role": "assistant", "content": content, **more}


def reasoning(text=None, summary=(), sealed=None):
    content = None if text is None else [{"type": "reasoning_text", "text": text}]
    return {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": one} for one in summary],
        "content": content,
        "encrypted_content": sealed,
    }


# Messages


def call(id, kind="function", name="f", **inner):
    inner = inner or {"arguments": "{}"}
    return {"id": id, "type": kind, kind: {"name": name, **inner}}


def assistant(content, *calls, **more):
    return {"role": "assistant", "content": content, **more, **({"tool_calls": [*calls]} if calls else {})}


def tool(id, content="ok"):
    return {"role": "tool", "tool_call_id": id, "content": content}


def text(text):
    return {"type": "text", "text": text}


def image(url=PNG, **more):
    return {"type": "image_url", "image_url": {"url": url, **more}}


def images(*images):
    return {"role": "user", "content": [text("Tool output images:"), *images]}


# Each type of item

SHELL = {"action": {"commands": ["ls"], "timeout_ms": None}, "environment": None}
LOCAL_SHELL = {"action": {"type": "exec", "command": ["ls"], "env": {}}}
PATCH = {"operation": {"type": "update_file", "path": "a", "diff": "@@"}}
SEARCH = {"arguments": {"query": "crm"}, "execution": "client"}
LOCAL_CALL = {"type": "local_shell_call", "id": "lsh_1", "call_id": "c1", "status": "completed", **LOCAL_SHELL}
RAN = [
    {"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
    {"stdout": "", "stderr": "late", "outcome": {"type": "timeout"}},
    {"stdout": "b", "stderr": None, "outcome": None},
    {"stderr": "c", "outcome": {"type": "exit"}},
]
RAN_TEXT = "exit_code: 0\nstdout:\na\n\ntimed out\nstderr:\nlate\nstdout:\nb\nstderr:\nc"


def shim(id, kind, fields):
    arguments = json.dumps(fields, separators=(",", ":"))
    return call(id, kind, kind, arguments=arguments)


# By case: items, the messages after the first one of the user, warnings
CASES = {
    "message without a type": ([{"role": "user", "content": "x"}], [{"role": "user", "content": "x"}], []),
    "message of each role": (
        [{"type": "message", "role": role, "content": [{"type": "input_text", "text": "x"}], "status": "completed"} for role in ("system", "developer", "user")],
        [{"role": role, "content": "x"} for role in ("system", "developer", "user")],
        [],
    ),
    "message of the assistant": (
        [{"role": "assistant", "content": "x", "phase": "commentary"}],
        [assistant("x")],
        [],
    ),
    "message without text": ([assistant_message([])], [assistant("")], []),
    "message as it was output": (
        [assistant_message([{"type": "output_text", "text": "a", "annotations": [{}], "logprobs": []}, {"type": "refusal", "refusal": "b"}], id="msg_1", status="completed")],
        [assistant("ab")],
        [],
    ),
    "messages in a row": ([assistant_message("a"), assistant_message(""), assistant_message("b")], [assistant("a\n\nb")], []),
    "function_call": (
        [fc("c1", "w", '{"a":1}', id="fc_1", status="completed", caller={"type": "direct"}), out("c1", "rain", id="fco_1", status="completed")],
        [assistant(None, call("c1", name="w", arguments='{"a":1}')), tool("c1", "rain")],
        [],
    ),
    "function_call in a namespace": (
        [fc("c1", "w", namespace="geo"), out("c1")],
        [assistant(None, call("c1", name="w", namespace="geo", arguments="{}")), tool("c1")],
        [],
    ),
    "function_call that was signed": (
        [fc("c1", provider_specific_fields={"thought_signature": "s"}), out("c1")],
        [assistant(None, {**call("c1"), "provider_specific_fields": {"thought_signature": "s"}}), tool("c1")],
        [],
    ),
    "custom_tool_call": (
        [
            {"type": "custom_tool_call", "call_id": "c1", "name": "exec", "input": "x\n", "namespace": "js"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "y"}]},
        ],
        [assistant(None, call("c1", "custom", "exec", namespace="js", input="x\n")), tool("c1", "y")],
        [],
    ),
    "local_shell_call answered by its call_id": (
        [LOCAL_CALL, {"type": "local_shell_call_output", "id": "c1", "output": '{"output":"a"}'}],
        [assistant(None, shim("c1", "local_shell", LOCAL_SHELL)), tool("c1", '{"output":"a"}')],
        [],
    ),
    "local_shell_call answered by its id": (
        [LOCAL_CALL, {"type": "local_shell_call_output", "id": "lsh_1", "output": "a"}],
        [assistant(None, shim("c1", "local_shell", LOCAL_SHELL)), tool("c1", "a")],
        [],
    ),
    "local_shell_call answered as if by a function": (
        [{**LOCAL_CALL, "id": None}, out("c1", "a")],
        [assistant(None, shim("c1", "local_shell", LOCAL_SHELL)), tool("c1", "a")],
        [],
    ),
    "local_shell_call whose output has an id of its own": (
        [LOCAL_CALL, {"type": "local_shell_call_output", "id": "lso_1", "call_id": "c1", "output": "a"}],
        [assistant(None, shim("c1", "local_shell", LOCAL_SHELL)), tool("c1", "a")],
        [],
    ),
    "shell_call": (
        [
            {"type": "shell_call", "id": "sh_1", "call_id": "c1", "status": "completed", **SHELL},
            {"type": "shell_call_output", "call_id": "c1", "output": RAN, "max_output_length": 100},
        ],
        [assistant(None, shim("c1", "shell", SHELL)), tool("c1", RAN_TEXT)],
        [],
    ),
    "apply_patch_call": (
        [
            {"type": "apply_patch_call", "call_id": "c1", "status": "completed", "provider_specific_fields": {"thought_signature": "s"}, **PATCH},
            {"type": "apply_patch_call_output", "call_id": "c1", "status": "failed", "output": "No such file"},
        ],
        [
            assistant(None, {**shim("c1", "apply_patch", PATCH), "provider_specific_fields": {"thought_signature": "s"}}),
            tool("c1", "failed\nNo such file"),
        ],
        [],
    ),
    "apply_patch_call_output without text": (
        [
            {"type": "apply_patch_call", "call_id": "c1", "status": "completed", **PATCH},
            {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed"},
        ],
        [assistant(None, shim("c1", "apply_patch", PATCH)), tool("c1", "completed")],
        [],
    ),
    "tool_search_call of the client": (
        [
            {"type": "tool_search_call", "call_id": "c1", "id": "tsc_1", "status": "completed", **SEARCH},
            {"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": [{"type": "function", "name": "find"}, {"type": "mcp", "server_label": "crm"}, {"type": "shell"}]},
        ],
        [assistant(None, shim("c1", "tool_search", SEARCH)), tool("c1", '["find","crm","shell"]')],
        [],
    ),
    "tool_search_call that does not say whose it is": (
        [
            {"type": "tool_search_call", "call_id": "c1", "arguments": {}},
            {"type": "tool_search_output", "call_id": "c1", "tools": []},
        ],
        [assistant(None, shim("c1", "tool_search", {"arguments": {}})), tool("c1", "[]")],
        [],
    ),
    "tool_search_call without a call_id": (
        [
            {"type": "tool_search_call", "id": "tsc_1", **SEARCH},
            {"type": "tool_search_output", "execution": "client", "tools": []},
        ],
        [assistant(None, shim("tsc_1", "tool_search", SEARCH)), tool("tsc_1", "[]")],
        [],
    ),
    "tool_search_call of the server": (
        [
            {"type": "tool_search_call", "id": "tsc_1", "arguments": {}, "execution": "server"},
            {"type": "tool_search_output", "tools": [{"type": "function", "name": "find"}]},
        ],
        [],
        ["dropped:input.tool_search_call"],
    ),
    "file_search_call with results": (
        [{"type": "file_search_call", "id": "fs_1", "queries": ["a"], "status": "completed", "results": [{"text": "b"}]}],
        [assistant(None, call("fs_1", name="file_search", arguments='{"queries":["a"]}')), tool("fs_1", '[{"text":"b"}]')],
        [],
    ),
    "file_search_call with too many results": (
        [{"type": "file_search_call", "id": "fs_1", "queries": ["a"], "results": [{"text": "b" * 30_000}]}],
        [
            assistant(None, call("fs_1", name="file_search", arguments='{"queries":["a"]}')),
            tool("fs_1", '[{"text":"' + "b" * 19_990),
        ],
        ["truncated:input.file_search_call.results"],
    ),
    "file_search_call with just enough results": (
        [{"type": "file_search_call", "id": "fs_1", "queries": ["a"], "results": [{"text": "b" * 19_987}]}],
        [
            assistant(None, call("fs_1", name="file_search", arguments='{"queries":["a"]}')),
            tool("fs_1", '[{"text":"' + "b" * 19_987 + '"}]'),
        ],
        [],
    ),
    "file_search_call without results": (
        [{"type": "file_search_call", "id": "fs_1", "queries": ["a"], "status": "completed", "results": None}],
        [],
        ["dropped:input.file_search_call"],
    ),
    "code_interpreter_call": (
        [{"type": "code_interpreter_call", "id": "ci_1", "container_id": "x", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}, {"type": "logs", "logs": "3"}]}],
        [assistant(None, call("ci_1", name="code_interpreter", arguments='{"code":"1+1"}')), tool("ci_1", "2\n3")],
        [],
    ),
    "code_interpreter_call without anything": (
        [{"type": "code_interpreter_call", "id": "ci_1", "container_id": "x", "code": None, "outputs": None}],
        [assistant(None, call("ci_1", name="code_interpreter", arguments='{"code":""}')), tool("ci_1", "")],
        [],
    ),
    "code_interpreter_call with an image": (
        [{"type": "code_interpreter_call", "id": "ci_1", "code": "", "outputs": [{"type": "image", "url": "https://x/y"}]}],
        [assistant(None, call("ci_1", name="code_interpreter", arguments='{"code":""}')), tool("ci_1", "")],
        ["dropped:input.code_interpreter_call.outputs"],
    ),
    "mcp_call": (
        [{"type": "mcp_call", "id": "mcp_1", "server_label": "crm", "name": "find", "arguments": "{}", "output": "x"}],
        [assistant(None, call("mcp_1", name="find", namespace="crm", arguments="{}")), tool("mcp_1", "x")],
        [],
    ),
    "mcp_call that failed": (
        [{"type": "mcp_call", "id": "mcp_1", "server_label": "crm", "name": "find", "arguments": "{}", "error": {"code": 5}}],
        [assistant(None, call("mcp_1", name="find", namespace="crm", arguments="{}")), tool("mcp_1", '{"code":5}')],
        [],
    ),
    "mcp_list_tools": (
        [{"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "crm", "tools": [{"name": "find", "input_schema": {}}]}],
        [],
        [],
    ),
    "mcp_call without a word": (
        [{"type": "mcp_call", "id": "mcp_1", "server_label": "crm", "name": "find", "arguments": "{}", "output": None}],
        [assistant(None, call("mcp_1", name="find", namespace="crm", arguments="{}")), tool("mcp_1", "")],
        [],
    ),
    "mcp_call that was cut": (
        [{"type": "mcp_call", "id": "mcp_1", "server_label": "crm", "name": "find", "arguments": '{"q', "output": None, "status": "incomplete"}, assistant_message("x")],
        [assistant("x")],
        ["dropped:input.mcp_call"],
    ),
    **{
        type: ([{"type": type, "id": "x_1", "status": "completed"}, assistant_message("x")], [assistant("x")], [f"dropped:input.{type}"])
        for type in ("web_search_call", "image_generation_call", "acme:telemetry")
    },
    "additional_tools": ([{"type": "additional_tools", "role": "developer", "tools": []}], [], []),
    "configuration_update": ([{"type": "configuration_update", "reasoning": {"effort": "low"}}], [], []),
    "compaction": (
        [SYSTEM, assistant_message("a"), fc("c1"), {"type": "compaction", "id": "cmp_1", "encrypted_content": "summary"}, assistant_message("b"), out("c1")],
        [SYSTEM, {"role": "user", "content": "<conversation_summary>All was well.</conversation_summary>"}, assistant("b")],
        [],
    ),
}  # fmt: skip
# Reasoning: items, the fields of its message, warnings
CASES |= {
    f"reasoning: {name}": ([*items, assistant_message("x")], [assistant("x", **fields)], listed)
    for name, (items, fields, listed) in {
        "its text": ([reasoning("a", ["b"], "ours")], {"reasoning_content": "a"}, []),
        "what is sealed": ([reasoning(None, ["b"], "ours")], {"reasoning_content": "Sealed."}, []),
        "its summary": ([reasoning(None, ["a", "b"])], {"reasoning_content": "a\n\nb"}, []),
        "nothing": ([reasoning()], {}, []),
        "no list at all": ([{"type": "reasoning"}], {}, []),
        "several": ([reasoning("a"), reasoning(), reasoning("b")], {"reasoning_content": "a\n\nb"}, []),
        "several parts": (
            [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "a"}, {"type": "reasoning_text", "text": "b"}]}],
            {"reasoning_content": "a\n\nb"},
            [],
        ),
        "signed by who answers": (
            [reasoning(None, [], "signed"), reasoning(None, [], "redacted")],
            {"reasoning_content": "Signed.", "thinking_blocks": [BLOCK, REDACTED]},
            [],
        ),
        "signed by another": ([reasoning(None, [], "another's")], {"reasoning_content": "Theirs."}, []),
        "a foreign seal with text": ([reasoning("a", [], "?")], {"reasoning_content": "a"}, ["dropped:input.reasoning.encrypted_content"]),
        "a foreign seal alone": ([reasoning(None, [], "?")], {}, ["dropped:input.reasoning.encrypted_content"]),
    }.items()
}  # fmt: skip
CASES |= {
    "reasoning before a call": ([reasoning("a"), fc("c1"), out("c1")], [assistant(None, call("c1"), reasoning_content="a"), tool("c1")], []),
    "reasoning between a call and its output": ([fc("c1"), reasoning("a"), out("c1")], [assistant(None, call("c1"), reasoning_content="a"), tool("c1")], []),
    "reasoning that led to nothing": ([reasoning("a")], [], ["dropped:input.reasoning"]),
    "reasoning that led to a cut call": (
        [reasoning("a"), fc("c1", status="incomplete")],
        [],
        ["dropped:input.function_call", "dropped:input.reasoning"],
    ),
    "reasoning before another question": ([reasoning("a"), USER, assistant_message("x")], [USER, assistant("x")], ["dropped:input.reasoning"]),
    "reasoning of an earlier turn": (
        [reasoning("a", [], "?"), assistant_message("x"), USER, reasoning("b"), fc("c1"), out("c1"), reasoning("c"), assistant_message("y")],
        [assistant("x"), USER, assistant(None, call("c1"), reasoning_content="b"), tool("c1"), assistant("y", reasoning_content="c")],
        ["dropped:input.reasoning"],
    ),
    # Items that belong together
    "a call after an output is a message of its own": (
        [fc("c1"), out("c1"), fc("c2"), out("c2")],
        [assistant(None, call("c1")), tool("c1"), assistant(None, call("c2")), tool("c2")],
        [],
    ),
    "calls in parallel are one message, outputs stay in their order": (
        [fc("c1"), fc("c2"), out("c2"), out("c1")],
        [assistant(None, call("c1"), call("c2")), tool("c2"), tool("c1")],
        [],
    ),
    "what stands between a call and its output goes to the call": (
        [fc("c1"), assistant_message("x"), out("c1")],
        [assistant("x", call("c1")), tool("c1")],
        [],
    ),
    "a call that comes while another waits goes to it": (
        [fc("c1"), fc("c2"), out("c1"), fc("c3"), out("c2"), out("c3")],
        [assistant(None, call("c1"), call("c2"), call("c3")), tool("c1"), tool("c2"), tool("c3")],
        [],
    ),
    "an output after a user message is moved to its call": (
        [fc("c1"), USER, out("c1"), assistant_message("x")],
        [assistant(None, call("c1")), tool("c1"), USER, assistant("x")],
        [],
    ),
    "a system message ends what belongs together": (
        [assistant_message("a"), SYSTEM, assistant_message("b")],
        [assistant("a"), SYSTEM, assistant("b")],
        [],
    ),
    "of two outputs the last holds": (
        [fc("c1"), fc("c2"), out("c1", "a"), out("c2", "b"), out("c1", "c")],
        [assistant(None, call("c1"), call("c2")), tool("c1", "c"), tool("c2", "b")],
        ["dropped:input.function_call_output"],
    ),
    "an id may come again": (
        [fc("c1"), out("c1", "a"), fc("c1", "g"), out("c1", "b")],
        [assistant(None, call("c1")), tool("c1", "a"), assistant(None, call("c1", name="g")), tool("c1", "b")],
        [],
    ),
    "an output without call_id belongs to the only call of its name that waits": (
        [fc("c1", "f"), fc("c2", "g"), fc("c3", "f", namespace="n"), out(None, "a", name="f"), out(None, "b", name="f", namespace="n"), out("c2", "c")],
        [
            assistant(None, call("c1"), call("c2", name="g"), call("c3", name="f", namespace="n", arguments="{}")),
            tool("c1", "a"), tool("c3", "b"), tool("c2", "c"),
        ],
        [],
    ),
    "a call that was cut needs no output": (
        [assistant_message("x"), fc("c1", status="incomplete"), USER],
        [assistant("x"), USER],
        ["dropped:input.function_call"],
    ),
    "nothing but a call that was cut": ([fc("c1", status="incomplete"), USER], [USER], ["dropped:input.function_call"]),
    "a call that was cut may have one": (
        [fc("c1", status="incomplete"), out("c1")],
        [assistant(None, call("c1")), tool("c1")],
        [],
    ),
    # Images in outputs
    "images in outputs stay where they are": (
        [
            fc("c1"), fc("c2"), fc("c3"),
            out("c2", [{"type": "input_image", "image_url": "data:2"}, {"type": "input_text", "text": "two"}, {"type": "input_image", "image_url": "data:3", "detail": "low"}]),
            out("c3", [{"type": "input_file", "file_data": "QQ==", "filename": "a.txt"}]),
            out("c1", [{"type": "input_image", "image_url": "data:1", "detail": "high"}]),
            assistant_message("x"),
        ],
        [
            assistant(None, call("c1"), call("c2"), call("c3")),
            tool("c2", [image("data:2"), text("two"), image("data:3", detail="low")]),
            tool("c3", [{"type": "file", "file": {"file_data": "QQ==", "filename": "a.txt"}}]),
            tool("c1", [image("data:1", detail="high")]),
            assistant("x"),
        ],
        [],
    ),
    "images in outputs are no new question": (
        [reasoning("a"), fc("c1"), out("c1", [{"type": "input_image", "image_url": PNG}])],
        [assistant(None, call("c1"), reasoning_content="a"), tool("c1", [image()])],
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_item_of_each_type_becomes_its_messages(name):
    items, messages, listed = CASES[name]
    # compaction drops all messages before it except instructions, so this case begins without one
    first = [] if name == "compaction" else [USER]

    assert messages_of([*first, *items]) == ([*first, *messages], listed)


def literals(type):
    if get_origin(type) is Literal:
        yield from get_args(type)
    elif get_origin(type) is Union:
        yield from (name for one in get_args(type) for name in literals(one))


def test_item_types_are_those_of_the_sdk():
    members = get_args(ResponseInputItemParam)
    known = {name for member in members for name in literals(get_type_hints(member)["type"])}
    assert len(members) == 33
    assert set(ITEMS) == known


def test_item_types_all_have_a_case():
    seen = {item.get("type", "message") for items, _, _ in CASES.values() for item in items}
    refused = {
        item.get("type") for input, *_ in REFUSED if isinstance(input, list) for item in input if isinstance(item, dict)
    }
    assert seen | refused >= set(ITEMS)


# Instructions, tools and settings of an input


def test_input_text_is_a_message_and_instructions_come_first():
    assert messages_of("Hello") == ([{"role": "user", "content": "Hello"}], [])
    assert messages_of("", instructions="") == ([{"role": "user", "content": ""}], [])
    assert messages_of([SYSTEM, USER], instructions="Be kind.") == (
        [{"role": "system", "content": "Be kind."}, SYSTEM, USER],
        [],
    )


def test_instructions_may_be_items():
    developer = {"role": "developer", "content": "Be kind."}
    compaction = {"type": "compaction", "encrypted_content": "summary"}
    summary = {"role": "user", "content": "<conversation_summary>All was well.</conversation_summary>"}
    assert messages_of([USER, compaction], instructions=[developer, USER]) == ([developer, USER, summary], [])


def test_tools_that_come_as_items_keep_their_order_and_their_paths():
    found = [{"type": "function", "name": "find"}, {"type": "function", "name": "get"}]
    brought = {"type": "namespace", "name": "crm"}
    given = conversation(
        [
            {"type": "additional_tools", "role": "developer", "tools": [brought]},
            USER,
            {"type": "tool_search_call", "call_id": "c1", **SEARCH},
            {"type": "tool_search_output", "call_id": "c1", **SEARCH, "tools": found},
        ],
        instructions=[{"type": "additional_tools", "tools": [{"type": "shell"}]}],
    )
    assert given.tools == [
        ({"type": "shell"}, "instructions[0].tools[0]"),
        (brought, "input[0].tools[0]"),
        (found[0], "input[3].tools[0]"),
        (found[1], "input[3].tools[1]"),
    ]


def test_settings_of_later_updates_override_earlier_ones():
    updates = [
        {"reasoning": {"effort": "low"}, "text": None},
        {"text": {"format": {"type": "json_object"}}},
        {"reasoning": {"effort": "high"}},
    ]
    items = [{"type": "configuration_update", **update} for update in updates]
    assert conversation([USER, *items]).settings == {
        "reasoning": {"effort": "high"},
        "text": {"format": {"type": "json_object"}},
    }
    assert conversation([USER]).settings == {}


def test_reasoning_of_all_turns_is_kept_if_requested():
    items = [reasoning("a", [], "?"), assistant_message("x"), USER, reasoning("b"), assistant_message("y")]
    assert messages_of([USER, *items], all_turns=True) == (
        [USER, assistant("x", reasoning_content="a"), USER, assistant("y", reasoning_content="b")],
        ["dropped:input.reasoning.encrypted_content"],
    )


def test_tool_call_without_output_can_be_repaired():
    custom = {"type": "custom_tool_call", "call_id": "c2", "name": "exec", "input": ""}
    assert messages_of([fc("c1"), custom, fc("c3"), out("c3"), USER], repair_dangling_calls=True) == (
        [
            assistant(None, call("c1"), call("c2", "custom", "exec", input=""), call("c3")),
            tool("c3"),
            tool("c1", "[no output]"),
            tool("c2", "[no output]"),
            USER,
        ],
        ["repaired:input.function_call", "repaired:input.custom_tool_call"],
    )


def test_tool_call_id_given_twice_is_no_error():
    """Two tool calls share a call_id, and each output names its tool call by another id."""
    outputs = [{"type": "local_shell_call_output", "id": id, "output": id} for id in ("lsh_1", "c1")]
    assert messages_of([LOCAL_CALL, {**LOCAL_CALL, "id": "lsh_2"}, *outputs])[0][1:] == [
        tool("c1", "lsh_1"),
        tool("c1", "c1"),
    ]


# Content parts

AUDIO = {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "mp3"}}
PARTS = [
    *(({"type": type, "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}, text("x"))
      for type in ("input_text", "output_text", "text", "summary_text", "reasoning_text")),
    ({"type": "input_image", "image_url": PNG}, image()),
    ({"type": "input_image", "image_url": PNG, "detail": None, "file_id": None}, image()),
    ({"type": "input_image", "image_url": {"url": PNG}, "detail": "low"}, image(detail="low")),
    ({"type": "input_image", "image_url": {"url": PNG, "detail": "low"}}, image(detail="low")),
    ({"type": "input_image", "image_url": {"url": PNG, "detail": "high"}, "detail": "low"}, image(detail="low")),
    ({"type": "input_image", "image_url": PNG, "detail": "auto"}, image(detail="auto")),
    ({"type": "input_image", "image_url": PNG, "detail": "high"}, image(detail="high")),
    ({"type": "input_image", "image_url": PNG, "detail": "original"}, image(detail="high")),
    ({"type": "computer_screenshot", "image_url": PNG}, image()),
    ({"type": "computer_screenshot", "file_id": "file-1"}, {"type": "image_url", "image_url": {"file_id": "file-1"}}),
    ({"type": "input_image", "file_id": "file-1", "image_url": None, "detail": "low"}, {"type": "image_url", "image_url": {"file_id": "file-1", "detail": "low"}}),
    ({"type": "input_file", "file_id": "file-1", "filename": "a"}, {"type": "file", "file": {"file_id": "file-1", "filename": "a"}}),
    ({"type": "input_video", "video_url": "data:video/mp4,"}, {"type": "video_url", "video_url": {"url": "data:video/mp4,"}}),
    ({"type": "input_video", "video_url": {"url": "data:"}}, {"type": "video_url", "video_url": {"url": "data:"}}),
    (AUDIO, AUDIO),
    ({"type": "input_file", "file_data": "QQ==", "filename": "a.txt", "detail": "low"}, {"type": "file", "file": {"file_data": "QQ==", "filename": "a.txt"}}),
    ({"type": "input_file", "file_url": "https://x/y", "file_data": None, "filename": "a"}, {"type": "file", "file": {"file_url": "https://x/y", "filename": "a"}}),
    ({"type": "input_file", "file_data": "QQ==", "filename": None}, {"type": "file", "file": {"file_data": "QQ=="}}),
]  # fmt: skip


@pytest.mark.parametrize(("part", "expected"), PARTS)
def test_part_of_each_type_becomes_a_part_of_chat(part, expected):
    assert messages_of([{"role": "user", "content": [part, part]}]) == (
        [{"role": "user", "content": [expected] * 2}],
        [],
    )


def test_part_types_all_have_a_case():
    assert {part["type"] for part, _ in PARTS} == set(history.MESSAGE)
    assert set(history.OUTPUT) < set(history.MESSAGE)
    assert set(history.ASSISTANT_PARTS) - set(history.MESSAGE) == {"refusal"}


# Inputs that are refused: input, message, code, param


def lacking(param, *items):
    return [*items], f"Missing required parameter: '{param}'.", "missing_required_parameter", param


def mistyped(param, expected, got, *items):
    text = f"Invalid type for '{param}': expected {expected}, but got {got} instead."
    return [*items], text, "invalid_type", param


def unsupported(param, *items):
    return [*items], None, "unsupported_value", param


def not_among(param, value, supported, *items):
    return [*items], f"Invalid value: '{value}'. Supported values are: {supported}.", "invalid_value", param


def part(**fields):
    return {"role": "user", "content": [fields]}


def choices_text(names):
    *most, last = [f"'{name}'" for name in names]
    return f"{', '.join(most)}, and {last}"


REFUSED = [
    # items as such
    mistyped("input[1]", "an object", "a string", USER, "x"),
    mistyped("input[0]", "an object", "null", None),
    lacking("input[0].type", {}),
    lacking("input[0].type", {"id": "x", "content": "y"}),
    mistyped("input[0].type", "a string", "an integer", {"type": 1}),
    not_among("input[0]", "smoke_signal", choices_text(ITEMS), {"type": "smoke_signal"}),
    not_among("input[0]", "acme:a b", choices_text(ITEMS), {"type": "acme:a b"}),
    not_among("input[0]", "acme:a\nb", choices_text(ITEMS), {"type": "acme:a\nb"}),
    # members that are required
    not_among("input[0].role", "tool", "'user', 'assistant', 'system', and 'developer'", {"role": "tool", "content": "x"}),
    lacking("input[0].role", {"type": "message", "content": "x"}),
    lacking("input[0].content", {"role": "user"}),
    lacking("input[0].content", {"role": "assistant", "content": None}),
    mistyped("input[0].content", "one of a string or array of objects", "an integer", {"role": "user", "content": 1}),
    mistyped("input[0].content", "one of a string or array of objects", "an object", assistant_message({})),
    lacking("input[0].summary[0].text", {"type": "reasoning", "summary": [{}]}),
    lacking("input[0].content[0].text", {"type": "reasoning", "content": [{}]}),
    mistyped("input[0].summary", "an array", "a string", {"type": "reasoning", "summary": "x"}),
    mistyped("input[0].encrypted_content", "a string", "an object", {"type": "reasoning", "encrypted_content": {}}),
    *(lacking(f"input[0].{name}", {**fc("c1"), name: None}) for name in ("call_id", "name", "arguments")),
    mistyped("input[0].arguments", "a string", "an object", fc("c1", arguments={})),
    mistyped("input[0].namespace", "a string", "an array", fc("c1", namespace=[])),
    mistyped("input[0].provider_specific_fields", "an object", "a string", fc("c1", provider_specific_fields="x")),
    lacking("input[1].output", fc("c1"), out("c1", None)),
    mistyped("input[1].output", "one of a string or array of objects", "an object", fc("c1"), out("c1", {})),
    mistyped("input[1].name", "a string", "an array", fc("c1"), out("c1", name=[])),
    mistyped("input[1].call_id", "a string", "an integer", fc("c1"), out(1)),
    *(lacking(f"input[0].{name}", {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": "", name: None}) for name in ("call_id", "name", "input")),
    lacking("input[0].output", {"type": "custom_tool_call_output", "call_id": "c1"}),
    lacking("input[0].call_id", {"type": "custom_tool_call_output", "output": "x"}),
    lacking("input[0].arguments", {"type": "tool_search_call", "call_id": "c1"}),
    lacking("input[0].call_id", {"type": "tool_search_call", **SEARCH}),
    not_among("input[0].execution", "x", "'server' and 'client'", {"type": "tool_search_call", "arguments": {}, "execution": "x"}),
    lacking("input[0].tools", {"type": "tool_search_output", "call_id": "c1"}),
    lacking("input[0].call_id", {"type": "tool_search_output", "execution": "client", "tools": []}),
    mistyped("input[0].tools[0]", "an object", "a string", {"type": "tool_search_output", "tools": ["x"]}),
    lacking("input[0].call_id", {**LOCAL_CALL, "call_id": None}),
    lacking("input[0].action", {"type": "local_shell_call", "call_id": "c1"}),
    lacking("input[0].id", {"type": "local_shell_call_output", "output": "x"}),
    lacking("input[0].output", {"type": "local_shell_call_output", "id": "x"}),
    lacking("input[0].call_id", {"type": "shell_call", **SHELL}),
    lacking("input[0].action", {"type": "shell_call", "call_id": "c1"}),
    lacking("input[0].call_id", {"type": "shell_call_output", "output": []}),
    mistyped("input[0].output", "an array", "a string", {"type": "shell_call_output", "call_id": "c1", "output": "x"}),
    lacking("input[0].output[0].outcome.type", {"type": "shell_call_output", "call_id": "c1", "output": [{"outcome": {}}]}),
    lacking("input[0].call_id", {"type": "apply_patch_call", **PATCH}),
    lacking("input[0].operation", {"type": "apply_patch_call", "call_id": "c1"}),
    not_among("input[0].status", "done", "'completed' and 'failed'", {"type": "apply_patch_call_output", "call_id": "c1", "status": "done"}),
    lacking("input[0].call_id", {"type": "apply_patch_call_output", "status": "failed"}),
    lacking("input[0].tools", {"type": "additional_tools", "role": "developer"}),
    mistyped("input[0].reasoning", "an object", "a string", {"type": "configuration_update", "reasoning": "low"}),
    mistyped("input[0].text", "an object", "a string", {"type": "configuration_update", "text": "json"}),
    lacking("input[0].encrypted_content", {"type": "compaction"}),
    lacking("input[0].id", {"type": "file_search_call", "queries": []}),
    lacking("input[0].queries", {"type": "file_search_call", "id": "x"}),
    lacking("input[0].id", {"type": "code_interpreter_call"}),
    mistyped("input[0].outputs[0].logs", "a string", "an integer", {"type": "code_interpreter_call", "id": "x", "outputs": [{"logs": 1}]}),
    *(lacking(f"input[0].{name}", {"type": "mcp_call", "id": "x", "server_label": "s", "name": "n", "arguments": "", name: None}) for name in ("id", "server_label", "name", "arguments")),
    lacking("input[0].id", {"type": "item_reference", "id": None}),
    # parts
    mistyped("input[0].content[0]", "an object", "a string", {"role": "user", "content": ["x"]}),
    lacking("input[0].content[0].type", part(text="x")),
    not_among("input[0].content[0]", "smell", choices_text(history.MESSAGE), part(type="smell")),
    not_among("input[0].content[0]", "refusal", choices_text(history.MESSAGE), part(type="refusal", refusal="x")),
    not_among("input[0].content[0]", "input_image", choices_text(history.ASSISTANT_PARTS), assistant_message([{"type": "input_image", "image_url": PNG}])),
    not_among("input[1].output[0]", "input_audio", choices_text(history.OUTPUT), fc("c1"), out("c1", [AUDIO])),
    lacking("input[0].content[0].text", part(type="input_text")),
    lacking("input[0].content[0].refusal", assistant_message([{"type": "refusal"}])),
    lacking("input[0].content[0].image_url", part(type="input_image")),
    lacking("input[0].content[0].image_url.url", part(type="input_image", image_url={})),
    mistyped("input[0].content[0].image_url", "a string", "an integer", part(type="input_image", image_url=1)),
    not_among("input[0].content[0].detail", "huge", "'low', 'high', 'auto', and 'original'", part(type="input_image", image_url=PNG, detail="huge")),
    not_among("input[0].content[0].image_url.detail", "huge", "'low', 'high', 'auto', and 'original'", part(type="input_image", image_url={"url": PNG, "detail": "huge"})),
    lacking("input[0].content[0].video_url", part(type="input_video")),
    lacking("input[0].content[0].input_audio", part(type="input_audio")),
    lacking("input[0].content[0].input_audio.format", part(type="input_audio", input_audio={"data": "x"})),
    lacking("input[0].content[0].file_data", part(type="input_file", filename="a")),
    ([part(type="input_image", image_url=PNG, file_id="file-1")], "Mutually exclusive parameters in 'input[0].content[0]': send only one of 'image_url' and 'file_id'.", "mutually_exclusive_parameters", "input[0].content[0]"),
    ([part(type="input_file", file_data="x", file_id="file-1")], "Mutually exclusive parameters in 'input[0].content[0]': send only one of 'file_data' and 'file_id'.", "mutually_exclusive_parameters", "input[0].content[0]"),
    mistyped("input[0].content[0].file_id", "a string", "an integer", part(type="input_image", file_id=1)),
    mistyped("input[0].content[0].file_id", "a string", "an integer", part(type="input_file", file_id=1)),
    mistyped("input[0].content[0].file_url", "a string", "an integer", part(type="input_file", file_url=1)),
    mistyped("input[1].output[0].file_id", "a string", "an integer", fc("c1"), out("c1", [{"type": "input_image", "file_id": 1}])),
    # sizes
    ("x" * 10_485_761, None, "string_above_max_length", "input"),
    ([part(type="input_text", text="x" * 10_485_761)], None, "string_above_max_length", "input[0].content[0].text"),
    ([part(type="input_image", image_url="x" * 20_971_521)], None, "string_above_max_length", "input[0].content[0].image_url"),
    ([part(type="input_file", file_data="x" * 33_554_433)], None, "string_above_max_length", "input[0].content[0].file_data"),
    # items that are unsupported, or sealed by another gateway
    *(unsupported("input[0]", {"type": type, "id": "x"})
      for type in ("compaction_trigger", "computer_call", "computer_call_output", "mcp_approval_request",
                   "mcp_approval_response", "program", "program_output")),
    ([{"type": "compaction", "encrypted_content": "gAAAA"}], None, "invalid_encrypted_content", "input[0].encrypted_content"),
    # items that do not fit together
    ([USER, out("c1")], "No tool call found for function call output with call_id c1.", None, "input"),
    ([out("c1"), fc("c1")], "No tool call found for function call output with call_id c1.", None, "input"),
    ([{"type": "shell_call_output", "call_id": "c1", "output": []}], "No tool call found for shell call output with call_id c1.", None, "input"),
    ([USER, fc("c1")], "No tool output found for function call c1.", None, "input"),
    ([USER, fc("c1"), fc("c2"), out("c2"), USER], "No tool output found for function call c1.", None, "input"),
    ([USER, {"type": "apply_patch_call", "call_id": "c1", "status": "in_progress", **PATCH}], "No tool output found for apply patch call c1.", None, "input"),
    lacking("input[1].call_id", fc("c1"), out(None)),
    lacking("input[1].call_id", fc("c1"), out(None, name="g")),
    lacking("input[2].call_id", fc("c1"), fc("c2"), out(None, name="f")),
    lacking("input[2].call_id", fc("c1"), out("c1"), out(None, name="f")),
    # inputs without a message
    lacking("input"),
    lacking("input", {"type": "web_search_call", "id": "ws_1"}),
    lacking("input", reasoning("a")),
]  # fmt: skip


def test_input_not_allowed_by_the_api_gets_its_error_message():
    for input, message, code, param in REFUSED:
        with pytest.raises(BadRequest) as caught:
            conversation(input)
        problem = caught.value.problem
        assert (problem.status, problem.code, problem.param) == (400, code, param), str(input)[:200]
        assert message in (None, problem.message)


def test_instructions_are_validated_like_input_but_are_no_input():
    for input, instructions, param in (
        ([USER], [{"role": "user"}], "instructions[0].content"),
        ([], "Be kind.", "input"),
        ([], [SYSTEM], "input"),
    ):
        with pytest.raises(BadRequest) as caught:
            conversation(input, instructions)
        assert caught.value.problem.param == param


def test_input_of_many_items_takes_linear_work():
    """Each output names its tool call by a name that all tool calls share, or that no other has."""

    def alternating(n):
        messages, _ = messages_of([USER, *(item for i in range(n) for item in (fc(f"c{i}"), out(None, name="f")))])
        assert len(messages) == 2 * n + 1

    def waiting(n):
        calls = [fc(f"c{i}", f"f{i}") for i in range(n)]
        messages, _ = messages_of([USER, *calls, *(out(None, name=f"f{i}") for i in range(n))])
        assert len(messages) == n + 2

    for read_items in (alternating, waiting):
        assert lines_run(read_items, 1600) < 8.5 * lines_run(read_items, 200)


def lines_run(function, *arguments):
    """Return the number of lines of Python that a call runs."""
    count = 0

    def trace(_, event, __):
        nonlocal count
        count += event == "line"
        return trace

    tracer = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(tracer)
    return count


# Inputs that real clients replay, up to the body that each kind of backend gets

REASONING = {"vllm": "reasoning", "llamacpp": "reasoning_content"}


def upstream(messages, kind, ledger=None, **policy):
    request = Request(model="m", messages=tuple(messages), fresh=True)
    ledger = ledger or Warnings()
    lowered, _ = lower_request(request, ledger)
    policy = MessagePolicy(reasoning=KINDS[kind].reasoning, **policy)
    return json.loads(chat_body(lowered, BodyTarget("m", KINDS[kind], policy), frozenset(), ledger))


@pytest.mark.parametrize("kind", REASONING)
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_input_replayed_by_clients_becomes_the_body_of_each_kind(name, kind):
    case, ledger = CONVERSATIONS[name], Warnings()
    read = conversation(case["input"], case.get("instructions"), ledger)
    messages = [
        {REASONING[kind] if field == "reasoning" else field: value for field, value in message.items()}
        for message in case["messages"]
    ]
    listed = case["ledger"]
    if kind == "llamacpp" and case.get("left_with_the_assistant"):
        messages, listed = [*messages, {"role": "user", "content": ""}], [*listed, "translated:messages"]

    assert upstream(read.messages, kind, ledger) == {"model": "m", "stream": False, "messages": messages}
    assert ledger.entries() == listed
    assert [list(tool) for tool in read.tools] == case.get("tools", [])


def test_response_that_is_fresh_does_not_continue_the_last_message():
    for kind in KINDS.values():
        request = Request(model="m", messages=(USER, assistant("x")), fresh=True)
        assert prefill_of(request, kind) is None
    assert prefill_of(Request(model="m", messages=(USER, assistant("x"))), KINDS["llamacpp"])


def test_request_that_may_be_continued_is_left_unchanged():
    ledger = Warnings()
    request = Request(model="m", messages=(USER, assistant("x")))
    target = BodyTarget("m", KINDS["llamacpp"], MessagePolicy())
    assert json.loads(chat_body(request, target, frozenset(), ledger))["messages"] == [USER, assistant("x")]
    assert ledger.entries() == []


ALTERNATING = [
    ([USER, USER], [{"role": "user", "content": "Hi\n\nHi"}]),
    (
        [USER, {"role": "user", "content": [text("a"), image()]}, USER],
        [{"role": "user", "content": [text("Hi"), text("a"), image(), text("Hi")]}],
    ),
    ([SYSTEM, USER, assistant("x"), USER], [SYSTEM, USER, assistant("x"), USER]),
    ([USER, SYSTEM], [{"role": "user", "content": "Hi\n\n<system_message>Be brief.</system_message>"}]),
    (
        [USER, assistant(None, call("c1"), call("c2")), tool("c1"), tool("c2"), images(image()), USER],
        [
            USER,
            assistant(None, call("c1"), call("c2")),
            tool("c1"),
            tool("c2"),
            assistant(""),
            {"role": "user", "content": [text("Tool output images:"), image(), text("Hi")]},
        ],
    ),
]


@pytest.mark.parametrize(("messages", "expected"), ALTERNATING)
def test_alternation_joins_consecutive_messages_of_the_user(messages, expected):
    ledger = Warnings()
    assert upstream(messages, "vllm", ledger, alternate=True)["messages"] == expected
    assert ("translated:messages" in ledger.entries()) == (expected != messages)


def test_config_roles_alternate_is_off_by_default():
    model = "models: {m: {backends: [b], roles: {alternate: true}}}\nbackends: {b: {url: 'http://127.0.0.1:8000'}}"
    assert config.parse(model, "gateway.yaml", {}, FORMATS, {}).models["m"].roles.alternate
    assert not config.ModelSettings().roles.alternate


# Replayed conversations become the same messages

TEXTS = st.text("ab \né😀", min_size=1, max_size=6)
NAMES = st.sampled_from(["f", "g", "exec"])


@st.composite
def calls_with_outputs(draw, ids):
    """Draw tool calls of a message, and their items and outputs in an order that a client may send."""
    calls, items, waiting, outputs = [], [], [], []
    for _ in range(draw(st.integers(1, 3))):
        # one stays open, so that the next tool call belongs to the same message
        while len(waiting) > 1 and draw(st.booleans()):
            outputs.append(waiting.pop(draw(st.integers(0, len(waiting) - 1))))
            items.append(outputs[-1])
        id, name, text = next(ids), draw(NAMES), draw(TEXTS)
        namespace = draw(st.sampled_from([{}, {"namespace": "n"}]))
        if draw(st.booleans()):
            calls.append(call(id, name=name, **namespace, arguments=text))
            items.append(fc(id, name, text, id="fc_" + id, **namespace))
            type = "function_call_output"
        else:
            calls.append(call(id, "custom", name, **namespace, input=text))
            items.append({"type": "custom_tool_call", "call_id": id, "name": name, "input": text, **namespace})
            type = "custom_tool_call_output"
        waiting.append({"type": type, "call_id": id, "output": draw(TEXTS)})
    last = draw(st.permutations(waiting))
    return calls, items + last, [tool(one["call_id"], one["output"]) for one in outputs + last]


@st.composite
def steps(draw, ids, calling):
    """Draw a message of the assistant with the outputs of its tool calls, and the items that mean the same."""
    thought, words = draw(st.none() | TEXTS), draw(TEXTS if not calling else st.none() | TEXTS)
    calls, replayed, outputs = draw(calls_with_outputs(ids)) if calling else ([], [], [])
    items = []
    if thought is not None:
        items.append(reasoning(thought) if draw(st.booleans()) else reasoning(None, [thought]))
    if words is not None:
        spoke = assistant_message(
            [{"type": "output_text", "text": words, "annotations": []}], id="msg_1", status="completed"
        )
        # the message may also come between the tool calls and their outputs, but not after the last output
        replayed.insert(draw(st.integers(0, max(len(replayed) - 1, 0))), spoke)
    fields = {} if thought is None else {"reasoning_content": thought}
    return [assistant(words, *calls, **fields), *outputs], items + replayed


@st.composite
def conversations(draw):
    """Draw messages, and the items as which a client replays them."""
    ids, messages, items = map("call_{}".format, range(1_000)), [], []
    for _ in range(draw(st.integers(1, 3))):
        question = {"role": draw(st.sampled_from(["user", "user", "developer"])), "content": draw(TEXTS)}
        messages.append(question)
        items.append(question)
        for calling in [True] * draw(st.integers(0, 2)) + [False] * draw(st.integers(0, 1)):
            spoke, replayed = draw(steps(ids, calling))
            messages += spoke
            items += replayed
    return messages, items


@untraced
@given(conversations())
def test_input_replayed_by_a_client_gives_the_same_messages(case):
    messages, items = case
    assert messages_of(items, all_turns=True) == (messages, [])


@untraced
@given(conversations())
def test_reasoning_is_kept_from_the_last_user_message_on(case):
    messages, items = case
    last = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=-1)
    kept = [
        {name: value for name, value in message.items() if i > last or name != "reasoning_content"}
        for i, message in enumerate(messages)
    ]
    left_out = ["dropped:input.reasoning"] if kept != messages else []
    assert messages_of(items) == (kept, left_out)


# Approvals

REQUEST = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "crm", "name": "find", "arguments": "{}"}
YES = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
MADE = {
    "type": "mcp_call",
    "id": "mcp_1",
    "approval_request_id": "mcpr_1",
    "server_label": "crm",
    "name": "find",
    "arguments": "{}",
    "output": "x",
}
APPROVAL_CALL = assistant(None, call("mcpr_1", name="find", namespace="crm", arguments="{}"))


@pytest.mark.parametrize(
    ("before", "input", "output", "approved"),
    [
        ([], [REQUEST, YES], "", 1),
        ([REQUEST], [YES], "", 1),
        ([REQUEST], [{**YES, "approve": False}], "This call was not made: the user did not approve it.", 0),
        ([REQUEST, YES], [USER], "It is not known what came of this call.", 0),
        ([REQUEST, YES, MADE], [USER], "x", 0),
        ([], [REQUEST, YES, MADE], "x", 0),
        ([], [REQUEST, YES, {**MADE, "output": None, "status": "incomplete"}], "It is not known what came of this call.", 0),
        ([REQUEST], [USER], "This call was not made: the user has not approved it.", 0),
    ],
)  # fmt: skip
def test_tool_call_runs_once_after_its_approval(before, input, output, approved):
    found = read_input(
        [USER, *input] if not before else input,
        None,
        [USER, *before] if before else [],
        HistoryRules(SEALED.get, Warnings(), "m", approves=True),
    )
    assert [message for message in found.messages if message != USER] == [APPROVAL_CALL, tool("mcpr_1", output)]
    assert len(found.approved) == approved


def test_approval_may_be_added_without_its_request():
    rules = HistoryRules(SEALED.get, Warnings(), "m", approves=True)
    assert read_excerpt([YES], "items", rules).approved == {}
    assert read_excerpt([REQUEST, YES], "items", rules).approved.keys() == {"mcpr_1"}


def test_tool_list_of_a_failed_mcp_server_is_ignored():
    listed = {"type": "mcp_list_tools", "id": "l", "server_label": "crm", "tools": [], "error": "down"}
    assert conversation([USER, listed]).lists == {}
    assert conversation([USER, {**listed, "error": None}]).lists == {"crm": []}
