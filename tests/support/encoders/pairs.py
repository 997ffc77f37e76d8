"""Calls as pairs of tags, one for the key and one for the value."""

from support.encoders.elements import fitting
from support.encoders.turn import Encoder, plain

KINDS = {bool: "boolean", int: "integer", float: "number", dict: "object", list: "array", str: "string"}


def pairs(line="", outer="", mark="", suffix="", separator="", *, kinds=False):
    """Return the encoder of pairs, with `line` after each tag, and perhaps a tag around all calls."""

    def tag(name, inside):
        return f"<{mark}{name}{suffix}>{inside}</{mark}{name}{suffix}>"

    def pair(key, value):
        kind = tag("arg_type", KINDS.get(type(value), "null")) + line if kinds else ""
        return tag("arg_key", key) + line + kind + tag("arg_value", plain(value)) + line

    def one(call):
        return tag(
            "tool_call", call.name + separator + line + "".join(pair(*argument) for argument in call.args.items())
        )

    def calls(calls):
        made = "\n".join(map(one, calls))
        return tag(outer, f"\n{made}\n") if outer else made

    around = (f"<{mark}{outer}{suffix}>",) if outer else ()
    around_end = (f"</{mark}{outer}{suffix}>",) if outer else ()
    return Encoder(
        calls=calls,
        thought=lambda text: tag("think", text),
        typed=not kinds,
        strings=fitting(
            (f"<{mark}tool_call{suffix}>", *around),
            (f"<{mark}arg_key{suffix}>",),
            (f"</{mark}arg_value{suffix}>",),
            (f"</{mark}tool_call{suffix}>", *around_end),
        ),
    )


ENCODERS = {
    "glm45_xml": pairs(line="\n"),
    "glm47_xml": pairs(),
    "ling3_xml": pairs(),
    "spark25": pairs(line="\n"),
    "poolside_v1": pairs(),
    "hy_v3": pairs(line="\n", outer="tool_calls", suffix=":opensource", separator="<tool_sep:opensource>"),
    "hy_v4": pairs(outer="tool_calls"),
    "k2_horizon": pairs(line="\n", outer="tool_calls", mark="ifm|", kinds=True),
}
