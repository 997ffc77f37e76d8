"""Write a turn as a model does in each format: the inverse of the parsers, made from the syntax alone."""

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
