"""Define the configuration of recordings."""

from typing import Annotated, Literal

from pydantic import Field

from gateway.config.scalars import Share, WholeNumber
from gateway.config.section import SettingsSection


class RecordingSettings(SettingsSection):
    """mode: which exchanges are written: those that fail, a share of all, those that ask for it by a header, or all.

    directory: where to; the oldest go when there are more than `files`, or than `bytes` in all.
    exchange_bytes: of one; what is beyond that is left out.  content: what clients and models say stays in it.
    """

    mode: Literal["off", "errors", "sample", "header", "all"] = "off"
    share: Share = 0.01
    directory: Annotated[str, Field(min_length=1)] = "recordings"
    files: Annotated[WholeNumber, Field(ge=1)] = 1000
    bytes: Annotated[WholeNumber, Field(ge=1)] = 1 << 30
    exchange_bytes: Annotated[WholeNumber, Field(ge=1)] = 16 << 20
    content: bool = False
