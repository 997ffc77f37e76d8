"""Calls as JSON objects between tags."""

from support.encoders.turn import Encoder, dumps


def each(before, after, joint="\n", arguments="arguments"):
    """Return a function that writes every call between tags of its own."""
    return lambda calls: joint.join(before + one(call, arguments) + after for call in calls)


def all_in(before, after, arguments="arguments"):
    """Return a function that writes all calls in one list."""
    return lambda calls: f"{before}[{', '.join(one(call, arguments) for call in calls)}]{after}"


def one(call, arguments):
    """Write a call as an object."""
    return f'{{"name": {dumps(call.name)}, "{arguments}": {dumps(call.args)}}}'


def keyed(calls):
    """Write calls as objects with the name as the key."""
    return f"<|tools_prefix|>[{', '.join(dumps({call.name: call.args}) for call in calls)}]<|tools_suffix|>"


def python(calls):
    """Write calls as a Python literal."""
    return "<|tool_calls|>" + repr([{"name": call.name, "arguments": call.args} for call in calls])


def cited(calls):
    """Write calls with ids, as Cohere does."""
    items = [{"tool_call_id": str(i), "tool_name": call.name, "parameters": call.args} for i, call in enumerate(calls)]
    return "<|START_ACTION|>[\n    " + ",\n    ".join(map(dumps, items)) + "\n]<|END_ACTION|>"


def actions(calls):
    """Write calls as Command R+ does."""
    items = ",\n    ".join(dumps({"tool_name": call.name, "parameters": call.args}) for call in calls)
    return f"Action: ```json\n[\n    {items}\n]\n```"


def blocks(calls):
    """Write calls as Inkling does."""
    return "".join(
        f"<|message_model|>{call.name}<|content_invoke_tool_json|>{one(call, 'args')}<|end_message|>" for call in calls
    )


def cohere(start, end):
    """Return the encoder of a Cohere model."""
    return Encoder(
        calls=cited,
        thought=lambda text: f"<|START_THINKING|>{text}<|END_THINKING|>",
        text=lambda text: f"<|START_{start}|>{text}<|END_{end}|>",
        after="<|END_OF_TURN_TOKEN|>",
    )


TOOL_CALL = each("<tool_call>\n", "\n</tool_call>")

ENCODERS = {
    "hermes_json": Encoder(calls=TOOL_CALL, after="<|im_end|>"),
    "llama3_json": Encoder(calls=each("", "", "; ", "parameters"), thought=None, after="<|eot_id|>"),
    "bare_json": Encoder(calls=all_in("", "")),
    "nemotron_nano_v2": Encoder(calls=all_in("<TOOLCALL>", "</TOOLCALL>"), after="<SPECIAL_12>"),
    "granite_json": Encoder(
        calls=all_in("<|tool_call|>", ""),
        thought=lambda text: f"Here is my thought process:\n{text}Here is my response:\n",
        after="<|end_of_text|>",
    ),
    "granite4_json": Encoder(calls=TOOL_CALL, after="<|end_of_text|>"),
    "granite_20b": Encoder(calls=each("<function_call> ", "")),
    "phi4_functools": Encoder(calls=all_in("functools", ""), thought=None, after="<|end|>"),
    "firefunction2": Encoder(calls=all_in("functools", ""), thought=None, after="<|eot_id|>"),
    "cohere3": cohere("RESPONSE", "RESPONSE"),
    "cohere4": cohere("TEXT", "TEXT"),
    "commandr_plus": Encoder(calls=actions, thought=None, after="<|END_OF_TURN_TOKEN|>"),
    "ernie45": Encoder(calls=TOOL_CALL, text=lambda text: f"<response>\n{text}</response>\n"),
    "hunyuan_a13b": Encoder(
        calls=all_in("<tool_calls>", "</tool_calls>"), text=lambda text: f"<answer>\n{text}</answer>"
    ),
    "internlm": Encoder(
        calls=each("<|action_start|><|plugin|>\n", "<|action_end|>\n", "", "parameters"), after="<|im_end|>"
    ),
    "jamba": Encoder(calls=all_in("<tool_calls>", "</tool_calls>"), thought=None),
    "longcat": Encoder(
        calls=each("<longcat_tool_call>", "</longcat_tool_call>"),
        thought=lambda text: f"<longcat_think>\n{text}</longcat_think>\n",
    ),
    "xlam": Encoder(calls=all_in("", "")),
    "gigachat3": Encoder(
        calls=each("<|message_sep|>\n\nfunction call<|role_sep|>\n", "", ""), thought=None, after="<|message_sep|>\n\n"
    ),
    "apertus": Encoder(
        calls=keyed,
        thought=lambda text: f"<|inner_prefix|>{text}<|inner_suffix|>",
        after="<|assistant_end|>",
    ),
    "inkling": Encoder(
        calls=blocks,
        thought=lambda text: f"<|content_thinking|>{text}<|end_message|>",
        text=lambda text: f"<|message_model|><|content_text|>{text}<|end_message|>",
        after="<|content_model_end_sampling|>",
    ),
    "apriel": Encoder(
        calls=all_in("<tool_calls>", "</tool_calls>"),
        thought=lambda text: f"Here are my reasoning steps:\n{text}[BEGIN FINAL RESPONSE]\n",
        after="<|end|>",
    ),
    "openpangu": Encoder(calls=all_in("<|tool_call_start|>", "<|tool_call_end|>")),
    "sarashina": Encoder(calls=python, thought=None),
    "reka": Encoder(calls=TOOL_CALL, thought=lambda text: f"<reasoning>\n{text}</reasoning>\n", after="<sep>"),
}
