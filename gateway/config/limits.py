"""Define the limits of the configuration: of requests, and of the usage of keys, groups and models."""

from typing import Annotated

from pydantic import Field

from gateway.config.types import (
    CounterUrl,
    SettingsSection,
    WholeNumber,
)

_TokensPerDay = Annotated[
    WholeNumber,
    Field(ge=0, description="Maximum number of tokens of prompts and responses in a UTC day; 0: no limit."),
]


_TokensPerMonth = Annotated[
    WholeNumber,
    Field(ge=0, description="Maximum number of tokens of prompts and responses in a UTC month; 0: no limit."),
]


class RateLimitSettings(SettingsSection):
    """Limits on usage; 0: no limit.  A day and a month begin at midnight UTC."""

    requests_per_minute: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=0, description="Maximum number of requests in a minute; 0: no limit."
    )
    tokens_per_minute: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=0, description="Maximum number of tokens of prompts and responses in a minute; 0: no limit."
    )
    tokens_per_day: _TokensPerDay = 0
    tokens_per_month: _TokensPerMonth = 0
    concurrent: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=0, description="Maximum number of requests at the same time, counted by each gateway; 0: no limit."
    )


class KeyLimitSettings(RateLimitSettings):
    """Limits of a key: on its usage, and on its files; 0: that of the section `limits` applies."""

    file_bytes: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=0, description="Maximum bytes of a file; 0: limits.file_bytes applies."
    )
    tenant_file_bytes: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=0, description="Maximum bytes of all files of the key; 0: limits.tenant_file_bytes applies."
    )


class GroupSettings(SettingsSection):
    """Budgets that all keys of a group share; 0: none."""

    tokens_per_day: _TokensPerDay = 0
    tokens_per_month: _TokensPerMonth = 0


class LimitSettings(SettingsSection):
    """Limits of requests.

    file_bytes: bytes of a stored file; tenant_file_bytes: of all files of a key.
    batch_lines: lines of a batch.
    memory_bytes: memory for all request bodies and their files in one process; requests beyond it wait or are refused.
    items: messages or items of a request, and an eighth of all values in it.
    parts: parts of one message or item.
    concurrent: concurrent requests in one process; more are refused unread; 0: no limit.
    url: the Redis that counts usage per key and model; None: the store counts it.
    """

    body_bytes: Annotated[WholeNumber, Field(ge=1)] = 32 << 20
    upload_bytes: Annotated[WholeNumber, Field(ge=1)] = 2 << 30
    file_bytes: Annotated[WholeNumber, Field(ge=1)] = 2 << 30
    tenant_file_bytes: Annotated[WholeNumber, Field(ge=1)] = 10 << 30
    batch_lines: Annotated[WholeNumber, Field(ge=1)] = 50_000
    frame_bytes: Annotated[WholeNumber, Field(ge=1)] = 8 << 20
    items: Annotated[WholeNumber, Field(ge=1)] = 20_000
    parts: Annotated[WholeNumber, Field(ge=1)] = 2_000
    memory_bytes: Annotated[WholeNumber, Field(ge=1)] = 256 << 20
    concurrent: Annotated[WholeNumber, Field(ge=0)] = 10_000
    url: CounterUrl | None = None
