"""Define the base class of all sections of a configuration."""

from pydantic import BaseModel, ConfigDict, model_validator


class SettingsSection(BaseModel):
    """A mapping of the file; a key that it does not have is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _present(cls, data: object) -> object:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None or key not in cls.known()}
        return {} if data is None else data

    @classmethod
    def known(cls) -> list[str]:
        """The keys that may be written here."""
        return [field.serialization_alias or name for name, field in cls.model_fields.items()]
