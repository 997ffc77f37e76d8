"""Check a backend by its list of models, for a line at the start and for `gateway check --probe`.

The check blocks.  It uses the HTTP client of the standard library, because httpx would take 7 MB of each gateway.
"""

import http.client
import ssl
from urllib.parse import urlsplit

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace

from gateway.backends.model_metadata import AGENT_WINDOW
from gateway.config import BackendSettings
from gateway.server.upstream.backend import auth_headers, backend_dialect, listed_models
from gateway.server.upstream.failure_text import NO_JSON, NO_LIST, failure_text, status_text
from gateway.warnings import safe_name

SECONDS = 5.0  # to connect, and for each read
_MAX = 8 << 20  # bytes of a list
_NAMED = 5  # models in a line


class BackendCheck(Struct, frozen=True, kw_only=True):
    """The result of a check.

    models: the listed models.
    short: the model with the shortest context length in tokens, if that is too short for agents.
    problem: what is wrong, "" if nothing is.
    may_recover: the backend may list its models later without a change of the configuration.
    """

    name: str
    kind: str
    url: str
    models: tuple[str, ...] = ()
    short: tuple[str, int] | None = None
    problem: str = ""
    may_recover: bool = False

    @property
    def line(self) -> str:
        """The result in one line: name, kind, address, and models or problem."""
        return f"{self.name}: {self.kind} at {self.url}: {self.problem or self._counted()}{self._shortage()}"

    def _counted(self) -> str:
        count = len(self.models)
        if not count:
            return "no models yet"
        names = ", ".join(map(safe_name, self.models[:_NAMED]))
        more = f" and {count - _NAMED} more" if count > _NAMED else ""
        return f"{count} model{'s' if count > 1 else ''}: {names}{more}"

    def _shortage(self) -> str:
        if not self.short:
            return ""
        model, tokens = self.short
        return f"; {tokens:,} tokens of context are too few for agents ({safe_name(model)}); ask `gateway doctor`"


def check_backend(name: str, settings: BackendSettings, seconds: float = SECONDS) -> BackendCheck:
    """Ask a backend for its models.  seconds: the time to connect, and for each read."""
    blank = BackendCheck(name=name, kind=settings.kind, url=settings.url)
    models_path = settings.path_of(backend_dialect(settings).models)
    path, shown = urlsplit(settings.root).path + models_path, models_path.partition("?")[0]
    connection = _connection(settings.root, seconds)
    try:
        connection.request("GET", path, headers=auth_headers(settings))
        response = connection.getresponse()
        body = response.read(_MAX)
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        return replace(blank, problem=failure_text(error, name, settings, seconds), may_recover=True)
    finally:
        connection.close()
    if response.status != 200:
        words = status_text(response.status, name, settings, response.headers.get("location", ""))
        return replace(blank, problem=words, may_recover=response.status >= 500)
    try:
        listed = json.decode(body)
    except DecodeError:
        return replace(blank, problem=NO_JSON.format(models=shown))
    models = listed_models(listed)
    if models is None:
        return replace(blank, problem=NO_LIST.format(models=shown))
    short = [(model.id, model.window) for model in models if model.window and model.window < AGENT_WINDOW]
    return replace(
        blank, models=tuple(model.id for model in models), short=min(short, key=lambda one: one[1], default=None)
    )


def _connection(url: str, seconds: float) -> http.client.HTTPConnection:
    """Return a connection that opens with the first request."""
    parts = urlsplit(url)
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=seconds)
    return http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=seconds, context=ssl.create_default_context()
    )
