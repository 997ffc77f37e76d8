"""Turns in channels, each with a header for its kind; and elements inside elements."""

from support.encoders.elements import fitting
from support.encoders.turn import Encoder, dumps, plain

START = "<|start|>assistant"
M3 = "]<]minimax[>["


class Begun(Encoder, frozen=True):
    """A turn whose first words are in the prompt."""

    begun: str

    def encode(self, parts):
        """Return the turn without the words in the prompt."""
        return super().encode(parts).removeprefix(self.begun)


def harmony(space=""):
    """Return the encoder of Harmony."""

    def message(header, body, end="<|end|>"):
        return f"<|start|>{space}assistant<|channel|>{space}{header}<|message|>{space}{body}{end}"

    def calls(calls):
        return "".join(
            message(f"commentary to=functions.{call.name} <|constrain|>{space}json", dumps(call.args), "<|call|>")
            for call in calls
        )

    return Begun(
        begun=f"<|start|>{space}assistant",
        calls=calls,
        thought=lambda text: message("analysis", text),
        text=lambda text: message("final", text),
    )


def functionary(calls):
    """Write calls as Functionary does."""
    return "".join(f">>>{call.name}\n{dumps(call.args)}" for call in calls)


def muse(calls):
    """Write calls as Muse does."""
    return "".join(f"{START} to={call.name}<|message|>{_atem(call)}<|eom|>" for call in calls)


def _atem(call):
    inside = "".join(
        f'<atem:parameter name="{key}">{plain(value)}</atem:parameter>\n' for key, value in call.args.items()
    )
    return f'<atem:function_calls>\n<atem:invoke name="{call.name}">\n{inside}</atem:invoke>\n</atem:function_calls>'


def minimax(calls):
    """Write calls as MiniMax M3 does."""
    inside = "\n".join(f'{M3}<invoke name="{call.name}">{_elements(call.args)}{M3}</invoke>' for call in calls)
    return f"{M3}<tool_call>\n{inside}\n{M3}</tool_call>"


def _elements(value):
    match value:
        case dict():
            return "".join(f"{M3}<{key}>{_elements(inner)}{M3}</{key}>" for key, inner in value.items())
        case list():
            return "".join(f"{M3}<item>{_elements(inner)}{M3}</item>" for inner in value)
    return plain(value)


ENCODERS = {
    "harmony": harmony(),
    "llmjp_harmony": harmony(" "),
    "functionary32": Begun(begun=">>>", calls=functionary, thought=None, text=">>>all\n{}".format),
    "muse_glimmer": Begun(
        begun=START,
        calls=muse,
        thought=lambda text: f"{START} to=self<|message|>{text}<|eom|>",
        text=lambda text: f"{START} to=user<|message|>{text}<|eom|>",
        typed=True,
        strings=fitting(
            ("<atem:invoke name=", "</atem:function_calls>", "<|eom|>", "<|eot|>"),
            ("<atem:parameter name=",),
            ("</atem:parameter>",),
            ("</atem:invoke>",),
        ),
    ),
    "minimax_m3": Encoder(
        calls=minimax,
        thought="<mm:think>{}</mm:think>".format,
        typed=True,
        strings=lambda value: M3 not in value + M3[:-1],
    ),
}
