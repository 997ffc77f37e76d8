"""Define the configuration of traces."""

from pydantic import Field, SecretStr

from gateway.config.scalars import Share, Url
from gateway.config.section import SettingsSection


class TracingSettings(SettingsSection):
    """url: where spans are sent, as OTLP over HTTP; None: as the environment says, else this machine's port 4318.

    headers: that go with them; they may be secrets.  share: of the requests whose client does not say.
    """

    enabled: bool = False
    url: Url | None = None
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    share: Share = 1
