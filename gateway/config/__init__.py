"""Parse the configuration.  Pure: text, file name, environment and the reader of files are arguments.

document      YAML, variables and files: a text → plain data with line numbers      ← start here
schema        every key with its type and default; tools.py has the built-in tools
types         the types of single values
validation    the links between sections; all errors at once
explanation   the words for errors of the schema; document has those of the syntax
errors        the errors of a configuration
"""

from collections.abc import Collection, Mapping
from io import StringIO

from ruamel.yaml import YAML

from gateway.config.auth import ApiKey, AuthSettings, Scope
from gateway.config.backends import BackendSettings, KindName, QueueSettings, TimeoutSettings
from gateway.config.document import ConfigDocument, read_document
from gateway.config.errors import ConfigError, ConfigFault, UnreadableFile
from gateway.config.models import ModelSettings, ReasoningSettings, RoleSettings, TargetSettings
from gateway.config.schema import (
    Config,
    InspectorSettings,
    LogSettings,
    RecordingSettings,
    ResponsesSettings,
    ServerSettings,
    StoreSettings,
    TlsSettings,
    TracingSettings,
)
from gateway.config.tools import (
    FetchSettings,
    FileSearchSettings,
    McpServerSettings,
    McpSettings,
    StaticSearchResult,
    ToolSettings,
    WebSearchSettings,
)
from gateway.config.types import key_digest, parse_digest
from gateway.config.validation import CheckedValue, build_config, has_open_pages, is_exposed, is_loopback

__all__ = [
    "ApiKey",
    "AuthSettings",
    "BackendSettings",
    "CheckedValue",
    "Config",
    "ConfigDocument",
    "ConfigError",
    "ConfigFault",
    "FetchSettings",
    "FileSearchSettings",
    "InspectorSettings",
    "KindName",
    "LogSettings",
    "McpServerSettings",
    "McpSettings",
    "ModelSettings",
    "QueueSettings",
    "ReasoningSettings",
    "RecordingSettings",
    "ResponsesSettings",
    "RoleSettings",
    "Scope",
    "ServerSettings",
    "StaticSearchResult",
    "StoreSettings",
    "TargetSettings",
    "TimeoutSettings",
    "TlsSettings",
    "ToolSettings",
    "TracingSettings",
    "UnreadableFile",
    "WebSearchSettings",
    "build_config",
    "dump_effective",
    "has_open_pages",
    "is_exposed",
    "is_loopback",
    "key_digest",
    "parse",
    "parse_digest",
    "read_document",
]  # fmt: skip


def parse(
    text: str,
    file: str,
    env: Mapping[str, str],
    formats: Collection[str],
    flags: Mapping[str, object] | None = None,
) -> Config:
    """Return the configuration in a YAML text that needs no other file.  Raises a ConfigError with all faults.

    formats: the valid names for `models.*.format`.
    flags: keys of `server` that override the text.
    """
    return build_config(read_document(text, file, env), formats, flags)


def dump_effective(config: Config) -> str:
    """Return the effective configuration as YAML, defaults included; secrets are masked."""
    data = config.model_dump(mode="json", by_alias=True)
    for name, model in data["models"].items():
        model["upstream_model"] = model["upstream_model"] or name
    out = StringIO()
    YAML().dump(data, out)
    return out.getvalue()
