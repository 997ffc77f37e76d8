"""Define the section `models` of the configuration."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from gateway.config.limits import RateLimitSettings
from gateway.config.types import (
    Format,
    ModelName,
    Name,
    Price,
    Seconds,
    SettingsSection,
    WholeNumber,
)


class TargetSettings(SettingsSection):
    """A backend that serves a model.  A bare name is short for it.

    upstream_model: the model's name at this backend; None: the `upstream_model` of the model applies.
    """

    name: Name = Field(description="Name of the backend.")
    weight: Annotated[WholeNumber, Field(ge=1)] = Field(
        default=1, description="The backend's share of the requests of its group."
    )
    priority: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=0, description="Group of the backend; group 1 serves only if no backend of group 0 is available."
    )
    upstream_model: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"name": data} if isinstance(data, str) else data


class ReasoningSettings(SettingsSection):
    """The reasoning in responses: the field of chat completions, and the carrier in the Responses API."""

    field: Literal["reasoning_content", "reasoning", "both"] = "reasoning_content"
    carrier: Literal["summary", "text", "both", "hidden"] = Field(
        default="summary", validation_alias="as", serialization_alias="as"
    )


class RoleSettings(SettingsSection):
    """The conversion of roles that chat templates do not accept."""

    developer: Literal["system", "native"] = "system"
    late_system: Literal["keep", "user", "merge"] = "user"
    alternate: bool = False


class EnforceSettings(SettingsSection):
    """The policy for a response that breaks a demand: report it, retry once, or refuse it after the retry.

    tool_choice: a forced tool call is missing, or another tool than the named one is called.
    response_format: the text is not the demanded JSON.
    empty: there is no text and no tool call, although tools are offered.
    arguments: the arguments of a tool call are beyond repair.
    """

    tool_choice: Literal["warn", "retry", "refuse"] = "retry"
    response_format: Literal["warn", "retry", "refuse"] = "warn"
    empty: Literal["warn", "retry"] = "retry"
    arguments: Literal["warn", "retry"] = "warn"


class FallbackSettings(SettingsSection):
    """A model that stands in for another.  A bare name is short for it.

    when: no backend of the other model is available, or the request is too long for its context.
    """

    model: ModelName = Field(description="Name of the model that stands in.")
    when: tuple[Literal["unavailable", "too_long"], ...] = Field(
        default=("unavailable",),
        min_length=1,
        description="No backend is available (unavailable), or the conversation exceeds the context (too_long).",
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"model": data} if isinstance(data, str) else data


class PriceSettings(SettingsSection):
    """Prices of a million tokens, in a currency of the operator's choice, for the page of usage and the dashboard.

    cached: input tokens that the server took from its cache; None: the price of input.
    """

    input: Price = Field(default=0, description="Price of a million input tokens.")
    output: Price = Field(default=0, description="Price of a million output tokens.")
    cached: Price | None = Field(
        default=None, description="Price of a million cached input tokens; default: the price of input."
    )

    @property
    def of_cached(self) -> float:
        """The price of a million cached input tokens."""
        return self.input if self.cached is None else self.cached


class ModelSettings(SettingsSection):
    """A model.

    sticky: requests with the same key from the client, or the same beginning of the prompt, go to the same backend.
    retries: further attempts until there is content for the client, at other backends if there are any.
    hedge_seconds: without content after this time, another backend gets the request as well; 0: never.
    mcp: MCP servers whose tools run at the gateway for chat completions.
    web_search: run a web search for chat completions with `web_search_options`.
    defaults, overrides: parameters of requests, by the names of a chat completion or of the backend's kind.  A default
        applies if the client sends none; an override always applies.
    """

    backends: tuple[TargetSettings, ...] = ()
    upstream_model: Annotated[str, Field(min_length=1)] | None = None  # None: the model's own name
    format: Format = "auto"
    response_template: dict[str, Any] | None = None  # the template that defines the format
    thought: Literal["auto", "open", "closed"] = "auto"
    tools: Literal["native", "prompt"] = "native"
    enforce: EnforceSettings = EnforceSettings()
    reasoning: ReasoningSettings = ReasoningSettings()
    roles: RoleSettings = RoleSettings()
    strict: bool = False
    aliases: tuple[ModelName, ...] = ()
    sticky: Literal["key", "prefix", "none"] = "key"
    retries: Annotated[WholeNumber, Field(ge=0)] = 2
    hedge_seconds: Seconds = 0
    fallback: tuple[FallbackSettings, ...] = ()
    mcp: tuple[Name, ...] = ()
    web_search: bool = False
    defaults: dict[str, Any] = Field(default_factory=dict)
    overrides: dict[str, Any] = Field(default_factory=dict)
    limits: RateLimitSettings = RateLimitSettings()
    price: PriceSettings = PriceSettings()


def model_prices(models: Mapping[str, ModelSettings]) -> dict[str, PriceSettings]:
    """Return the prices of the models that have any."""
    return {name: model.price for name, model in models.items() if model.price != PriceSettings()}
