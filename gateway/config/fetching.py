"""Define the configuration of fetched URLs."""

from typing import Annotated

from pydantic import Field

from gateway.config.scalars import Network, Port, WholeNumber
from gateway.config.section import SettingsSection


class FetchSettings(SettingsSection):
    """Limits for URLs in requests.  max_bytes, seconds: for all of a request.

    ports: of public addresses; networks: may be fetched from as well, at any port.
    """

    fetch: bool = False
    max_bytes: Annotated[WholeNumber, Field(ge=1)] = 20 << 20
    seconds: Annotated[WholeNumber, Field(ge=1)] = 10
    ports: tuple[Annotated[Port, Field(ge=1)], ...] = (80, 443)
    networks: tuple[Network, ...] = ()
