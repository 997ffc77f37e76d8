"""Calls as text between tags, one tag per argument."""

import re

from support.encoders.turn import Encoder, dumps, plain

JSON_TYPES = {bool: "boolean", int: "number", float: "number", dict: "object", list: "array", str: "string"}


def fitting(opening, keys, value_ends, call_ends, *, trim=False):
    """Return a function that tests if a string can be a value between such tags.

    Nothing in the string may look like the end of the value or of the call.
    """
    keys, value_ends, call_ends = ("|".join(map(re.escape, tags)) for tags in (keys, value_ends, call_ends))
    opening = "|".join(map(re.escape, opening))
    broken = re.compile(rf"{keys}|(?:{value_ends})\s*(?:{call_ends}|{opening})|(?:{call_ends})\s*(?:{opening}|\Z)")
    return lambda value: not broken.search(value)


def qwen(line="\n", outer="tool_call"):
    """Return a function that writes calls as Qwen does."""

    def calls(calls):
        return "\n".join(
            f"<{outer}>\n<function={call.name}>\n{parameters(call)}</function>\n</{outer}>" for call in calls
        )

    def parameters(call):
        return "".join(f"<parameter={key}>{line}{plain(value)}{line}</parameter>\n" for key, value in call.args.items())

    return calls


QWEN_TAGS = {"keys": ("<parameter=",), "value_ends": ("</parameter>",), "call_ends": ("</function>", "</tool_call>")}
fits_qwen = fitting(opening=("<function=", "<tool_call>"), **QWEN_TAGS)
QWEN = Encoder(calls=qwen(), typed=True, strings=fits_qwen)
fits_seed = fitting(
    opening=("<function=", "<seed:tool_call>"), **(QWEN_TAGS | {"call_ends": ("</function>", "</seed:tool_call>")})
)


def unframed(fits):
    """Return a test for strings that lose nothing if the tags include a line end on both sides."""
    return lambda value: fits(value) and not re.match(r"\r?\n", value)


def inline(fits):
    """Return a test for strings that lose nothing if the tags include a line end on either side."""
    return lambda value: fits(value) and not re.match(r"\r?\n", value) and value[-1:] not in ("\r", "\n")


def invokes(calls, before, mark="", after=""):
    """Write invocations, in which each parameter has a name."""
    return "\n".join(
        f'{before}<{mark}invoke name="{call.name}">\n'
        + "".join(
            f'<{mark}parameter name="{key}">{plain(value)}</{mark}parameter>\n' for key, value in call.args.items()
        )
        + f"</{mark}invoke>{after}"
        for call in calls
    )


def block(tag):
    """Return an encoder with this tag around the calls."""
    return Encoder(
        calls=lambda calls: f"<{tag}>\n{invokes(calls, '')}\n</{tag}>",
        typed=True,
        strings=unframed(
            fitting(("<invoke name=", f"<{tag}>"), ("<parameter name=",), ("</parameter>",), ("</invoke>", f"</{tag}>"))
        ),
    )


STEP3_OUTER = (
    "<｜tool_calls_begin｜>",
    "<｜tool_calls_end｜>",
    "<｜tool_call_begin｜>function<｜tool_sep｜>",
    "<｜tool_call_end｜>",
)


def step3(calls):
    """Write calls as Step 3 does."""
    begin, end, before, after = STEP3_OUTER
    return f"{begin}\n{invokes(calls, before, 'steptml:', after)}\n{end}"


STEP3_STRINGS = fitting(
    ("<steptml:invoke name=", STEP3_OUTER[0], STEP3_OUTER[2]),
    ("<steptml:parameter name=",),
    ("</steptml:parameter>",),
    ("</steptml:invoke>", STEP3_OUTER[1], STEP3_OUTER[3]),
)


def minicpm5(calls):
    """Write calls as MiniCPM 5 does."""
    return "<tool_sep>".join(
        f'<function name="{call.name}">'
        + "".join(f'<param name="{key}">{cdata(plain(value))}</param>' for key, value in call.args.items())
        + "</function>"
        for call in calls
    )


def cdata(text):
    """Return a text as CDATA if it needs that."""
    return f"<![CDATA[{text}]]>" if re.search(r"[<&\r\n]", text) else text


MARKS = [f"{bar}DSML{bar}{gap}" for bar in ("｜", "｜｜", "|", "||", "‖") for gap in ("", " ")]


def dsml(mark, outer, marks=MARKS, words=("function_calls", "tool_calls", "toolcalls", "tool", "calls")):
    """Return the encoder of DeepSeek's markup; marks, words: the spellings that end a value, of all versions."""

    def calls(calls):
        made = "\n".join(f'<{mark}invoke name="{call.name}">\n{parameters(call)}</{mark}invoke>' for call in calls)
        return f"<{mark}{outer}>\n{made}\n</{mark}{outer}>"

    def parameters(call):
        return "".join(
            f'<{mark}parameter name="{key}" string="{dumps(isinstance(value, str))}">{plain(value)}</{mark}parameter>\n'
            for key, value in call.args.items()
        )

    ends = [f"</{mark}{word}>" for mark in marks for word in ("invoke", *words)]
    fits = fitting(
        [f"<{mark}{end}" for mark in marks for end in ("invoke name=", *(f"{word}>" for word in words))],
        [f"<{mark}parameter name=" for mark in marks],
        [f"</{mark}parameter>" for mark in marks],
        ends,
    )
    return Encoder(
        calls=calls,
        thought=lambda text: f"<think>{text}</think>",
        strings=lambda value: (
            fits(value) and not any(end in value for end in ends)
        ),  # a turn may end behind any of them
    )


def opened(tag, inside, **attributes):
    """Write an element of Kimi K3."""
    attribute_text = "".join(f' {key}="{escaped(str(value))}"' for key, value in attributes.items())
    return f"<|open|>{tag}{attribute_text}<|sep|>{inside}<|close|>{tag}<|sep|>"


def escaped(text):
    """Escape the value of an attribute."""
    return text.replace("&", "&amp;").replace('"', "&quot;")


def kimi_k3(calls):
    """Write calls as Kimi K3 does."""
    made = ""
    for index, call in enumerate(calls, 1):
        arguments = "".join(
            opened("argument", plain(value), key=key, type=JSON_TYPES.get(type(value), "null"))
            for key, value in call.args.items()
        )
        made += opened("call", arguments, tool=call.name, index=index)
    return opened("tools", made)


ENCODERS = {
    **dict.fromkeys(("qwen_xml", "nemotron3_xml", "step3p5_xml", "granite_thinking_xml", "minicpmv_xml"), QWEN),
    "mimo_xml": Encoder(calls=qwen(line=""), typed=True, strings=fits_qwen),
    "seed_oss_xml": Encoder(
        calls=qwen(line="", outer="seed:tool_call"),
        thought=lambda text: f"<seed:think>{text}</seed:think>\n",
        typed=True,
        strings=unframed(fits_seed),
        after="<seed:eos>",
    ),
    "step3": Encoder(calls=step3, typed=True, strings=inline(STEP3_STRINGS)),
    "minicpm5_xml": Encoder(calls=minicpm5, typed=True, strings=lambda value: "]]>" not in value),
    "minimax_m2": block("minimax:tool_call"),
    "dots": block("dots_function_call"),
    "dsml_v32": dsml("｜DSML｜", "function_calls"),
    "dsml_v4": dsml("｜DSML｜", "tool_calls"),
    "dsml_v41": dsml("｜DSML｜ ", "calls"),
    "gigachat35": dsml("｜GCML｜", "tool_calls", ("｜GCML｜",), ("tool_calls",)),
    "kimi_k3": Encoder(
        calls=kimi_k3,
        thought=lambda text: opened("think", text),
        text=lambda text: opened("response", text),
        strings=fitting(
            ("<|open|>call tool=", "<|open|>tools<|sep|>"),
            ("<|open|>argument key=",),
            ("<|close|>argument<|sep|>",),
            ("<|close|>call<|sep|>", "<|close|>tools<|sep|>"),
        ),
        after="<|close|>message<|sep|><|end_of_msg|>",
    ),
}
