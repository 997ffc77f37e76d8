"""What an operator can write about what is fetched by its URL."""

from typing import Annotated

from pydantic import Field

from gateway.config.scalars import Network, Port, Whole
from gateway.config.section import Section


class Fetching(Section):
    """What requests name by URL.  max_bytes, seconds: for all of a request.

    ports: of public addresses; networks: may be fetched from as well, at any port.
    """

    fetch: bool = False
    max_bytes: Annotated[Whole, Field(ge=1)] = 20 << 20
    seconds: Annotated[Whole, Field(ge=1)] = 10
    ports: tuple[Annotated[Port, Field(ge=1)], ...] = (80, 443)
    networks: tuple[Network, ...] = ()
