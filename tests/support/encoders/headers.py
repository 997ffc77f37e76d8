"""Calls with the name in a header before their JSON."""

from support.encoders.turn import Encoder, dumps


def mistral(calls):
    """Write calls as Mistral does."""
    return "".join(f"[TOOL_CALLS]{call.name}[ARGS]{dumps(call.args)}" for call in calls)


def deepseek(write):
    """Return a function that writes calls as DeepSeek does."""

    def calls(calls):
        inside = "\n".join(f"<｜tool▁call▁begin｜>{write(call)}<｜tool▁call▁end｜>" for call in calls)
        return f"<｜tool▁calls▁begin｜>{inside}<｜tool▁calls▁end｜>"

    return calls


def fenced(call):
    """Write a call with its JSON in a code block."""
    return f"function<｜tool▁sep｜>{call.name}\n```json\n{dumps(call.args)}\n```"


def plain(call):
    """Write a call with its plain JSON."""
    return f"{call.name}<｜tool▁sep｜>{dumps(call.args)}"


def kimi(calls):
    """Write calls as Kimi K2 does."""
    inside = "".join(
        f"<|tool_call_begin|>functions.{call.name}:{i}<|tool_call_argument_begin|>{dumps(call.args)}<|tool_call_end|>"
        for i, call in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{inside}<|tool_calls_section_end|>"


def functionary(calls):
    """Write calls as Functionary does."""
    return "".join(f"<function={call.name}>{dumps(call.args)}</function>" for call in calls)


def plamo(calls):
    """Write calls as PLaMo does."""
    return _plamo("tool_requests", "".join(map(_plamo_call, calls)))


def _plamo_call(call):
    name = _plamo("tool_name", call.name)
    arguments = _plamo("tool_arguments", f"<|plamo:constrain|>json<|plamo:msg|>{dumps(call.args)}")
    return _plamo("tool_request", name + arguments)


def _plamo(tag, inside):
    return f"<|plamo:begin_{tag}:plamo|>{inside}<|plamo:end_{tag}:plamo|>"


ENCODERS = {
    "mistral": Encoder(calls=mistral, thought="[THINK]{}[/THINK]".format),
    "deepseek_v3": Encoder(calls=deepseek(fenced), after="<｜end▁of▁sentence｜>"),
    "deepseek_v31": Encoder(calls=deepseek(plain), after="<｜end▁of▁sentence｜>"),
    "kimi_k2": Encoder(calls=kimi, thought="<think>{}</think>".format, after="<|im_end|>"),
    "functionary31": Encoder(calls=functionary, thought=None),
    "plamo3": Encoder(calls=plamo, thought=lambda text: _plamo("think", text), after="<|plamo:tag|>"),
}
