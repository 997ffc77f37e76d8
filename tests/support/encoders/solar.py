"""Calls of the model families of Upstage."""

from support.encoders.elements import fitting
from support.encoders.turn import Encoder, dumps, plain


def pairs(calls):
    """Write calls as Solar Open 2 does."""
    return "\n".join(
        f"<|tool_call:start|>{call.name}\n{''.join(map(pair, call.args.items()))}<|tool_call:end|>" for call in calls
    )


def pair(argument):
    """Write an argument."""
    key, value = argument
    return f"<|tool_arg:start|>{key}<|tool_arg:value|>{plain(value)}<|tool_arg:end|>\n"


def blocks(calls):
    """Write calls as Solar Open does."""
    return "<|tool_calls|>" + "".join(block(i, call) for i, call in enumerate(calls)) + "<|calls|>"


def block(number, call):
    """Write one call."""
    return (
        f"<|tool_call:begin|>{number}<|tool_call:name|>{call.name}<|tool_call:args|>{dumps(call.args)}<|tool_call:end|>"
    )


ENCODERS = {
    "solar_open2": Encoder(
        calls=pairs,
        thought=lambda text: f"<|think:start|>{text}<|think:end|>",
        after="<|im:end|>",
        typed=True,
        strings=fitting(
            ("<|tool_call:start|>",), ("<|tool_arg:start|>",), ("<|tool_arg:end|>",), ("<|tool_call:end|>",)
        ),
    ),
    "solar_open": Encoder(calls=blocks, thought=lambda text: f"<|think|>{text}<|end|><|begin|>assistant"),
}
