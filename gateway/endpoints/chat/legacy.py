"""`functions`, `function_call` and the role `function`, which tools replaced: told in today's terms."""

from typing import Any

from gateway.errors import BadRequest
from gateway.request import Message


def functions_to_tools(body: dict[str, Any]) -> bool:
    """Put tools in the place of functions; True if the client speaks the old way."""
    functions, choice = body.pop("functions", None), body.pop("function_call", None)
    if functions and body.get("tools"):
        raise BadRequest("'functions' and 'tools' cannot both be given.", param="functions")
    if functions:
        body["tools"] = [{"type": "function", "function": function} for function in functions]
        if choice is not None and "tool_choice" not in body:
            named = isinstance(choice, dict)
            body["tool_choice"] = {"type": "function", "function": choice} if named else choice
        return True
    return False


def function_messages_to_tools(messages: list[Message]) -> list[Message]:
    """Past function calls get ids, and their results name them."""
    modern: list[Message] = []
    open_calls: dict[str, str] = {}  # name → id of the last call
    for i, message in enumerate(messages):
        if isinstance(called := message.get("function_call"), dict):
            id = f"call_function_{i}"
            open_calls[str(called.get("name"))] = id
            rest = {key: value for key, value in message.items() if key != "function_call"}
            modern.append({**rest, "tool_calls": [{"id": id, "type": "function", "function": called}]})
        elif message["role"] == "function":
            modern.append(_result(message, open_calls.get(message["name"]), f"messages[{i}]"))
        else:
            modern.append(message)
    return modern


def _result(message: Message, id: str | None, param: str) -> Message:
    if id is None:
        raise BadRequest(f"No call of the function '{message['name']}' precedes its result.", param=f"{param}.name")
    return {"role": "tool", "tool_call_id": id, "content": message.get("content") or ""}
