"""How a model writes a turn in each format: the other direction of the parsers, written from the formats' syntax alone."""

from support.encoders import channels, elements, expressions, headers, objects, pairs, solar
from support.encoders.turn import Encoder

ENCODERS: dict[str, Encoder] = {
    **objects.ENCODERS,
    **elements.ENCODERS,
    **pairs.ENCODERS,
    **solar.ENCODERS,
    **headers.ENCODERS,
    **expressions.ENCODERS,
    **channels.ENCODERS,
}
