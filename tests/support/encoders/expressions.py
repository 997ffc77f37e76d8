"""Calls as Python expressions, and Gemma's dialect of JSON."""

from support.encoders.turn import Encoder, dumps


def python(call, literal=repr):
    """Write a call as a Python expression."""
    return f"{call.name}({', '.join(f'{key}={literal(value)}' for key, value in call.args.items())})"


def listed(calls):
    """Write calls as a Python list."""
    return f"[{', '.join(map(python, calls))}]"


def lines(calls):
    """Write calls one per line, as Olmo 3 does."""
    inside = "\n".join(python(call, dumps) for call in calls)
    return f"<function_calls>\n{inside}\n</function_calls>"


def gemma(mark):
    """Return a function that writes a value: a string between marks, a container of values, or a word of JSON."""

    def value(value):
        match value:
            case str():
                return f"{mark}{value}{mark}"
            case list():
                return f"[{','.join(map(write, value))}]"
            case dict():
                return f"{{{','.join(f'{key}:{write(inner)}' for key, inner in value.items())}}}"
        return dumps(value)

    write = value
    return value


def gemma_calls(mark, begin, end):
    """Return a function that writes calls as Gemma does."""
    write = gemma(mark)
    return lambda calls: "".join(f"{begin}call:{call.name}{write(call.args)}{end}" for call in calls)


def between(mark, end):
    """Return a test for strings that can stand between marks."""
    return lambda text: mark not in text + mark[:-1] and not ends_call(text, end)


def ends_call(text, end):
    """Return True if a string looks like the end of the call."""
    return any(part.lstrip().startswith(end) for part in text.split("}")[1:])


ENCODERS = {
    "pythonic": Encoder(calls=listed, thought=None),
    "llama4_pythonic": Encoder(calls=lambda calls: f"<|python_start|>{listed(calls)}<|python_end|>", thought=None),
    "lfm2_pythonic": Encoder(calls=lambda calls: f"<|tool_call_start|>{listed(calls)}<|tool_call_end|>"),
    "olmo3_pythonic": Encoder(calls=lines, thought="<think>{}</think>".format),
    "gemma4": Encoder(
        calls=gemma_calls('<|"|>', "<|tool_call>", "<tool_call|>"),
        thought="<|channel>thought\n{}<channel|>".format,
        strings=between('<|"|>', "<tool_call|>"),
        after="<turn|>",
    ),
    "functiongemma": Encoder(
        calls=gemma_calls("<escape>", "<start_function_call>", "<end_function_call>"),
        thought=None,
        strings=between("<escape>", "<end_function_call>"),
        after="<end_of_turn>",
    ),
}
