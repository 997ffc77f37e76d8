"""Say in plain words why a backend cannot be reached or did not list its models, and what to do about it.

The lines at the start, `gateway check --probe`, `gateway doctor`, the overview and errors share these words.
"""

import http.client
import os
import re
import socket
import ssl
from collections.abc import Iterator

from gateway.backends import KINDS
from gateway.config import BackendSettings
from gateway.warnings import safe_name

NO_JSON = "{models} returned no JSON; is it a model server?"
NO_LIST = "{models} returned no list of models; is it a model server?"
_MODELS = "/v1/models"
_NO_HTTP = "no valid HTTP response; is it a {server}?"
_CLOSED = "the connection was closed without a response; is it a {server}, with https instead of http?"
_NO_HOST = "the host name cannot be resolved; check {url}"
_NO_TLS = "the server does not speak TLS; does {url} need http instead of https?"
_SILENT = "no response{within}; is the server busy, or does a firewall block the port?"
# The first row that fits an error, or one of its causes, has its words.
_WORDS: tuple[tuple[type[BaseException], str], ...] = (
    (ConnectionRefusedError, "connection refused; is {program} running?"),
    (socket.gaierror, _NO_HOST),
    (UnicodeDecodeError, NO_JSON),
    (UnicodeError, _NO_HOST),  # for a name that DNS cannot hold
    (ssl.SSLCertVerificationError, "the certificate is not trusted: {reason}"),
    (ssl.SSLError, _NO_TLS),
    (TimeoutError, _SILENT),
    (ConnectionError, _CLOSED),
    (http.client.HTTPException, _NO_HTTP),
    (OSError, "no connection: {system}"),
    (ValueError, NO_JSON),
)
_NUMBER = re.compile(r"\[Errno (\d+)\]")  # in the error of a host with several addresses


def failure_text(error: BaseException, name: str, settings: BackendSettings, seconds: float) -> str:
    """Return the cause of a failed request for the list of models.  seconds: its timeout."""
    program, url = KINDS[settings.kind].program, f"backends.{name}.url"
    models = settings.path_of(_MODELS)
    return cause_text(error, program=program, url=url, within=f" within {seconds:g} s", models=models)


def cause_text(
    error: BaseException,
    *,
    server: str = "model server",
    program: str = "the server",
    url: str = "its url",
    within: str = " in time",
    models: str = _MODELS,
) -> str:
    """Return the cause of a failure.

    server: the sort of server; program: its program; url: the key of its address; within: the timeout.
    models: the path of the list of models.
    """
    causes = [*_causes(error)]
    rows = ((words, cause) for kind, words in _WORDS for cause in causes if isinstance(cause, kind))
    words, found = next(rows, (_NO_HTTP, error))
    return words.format(
        server=server,
        program=program,
        url=url,
        within=within,
        models=models,
        reason=getattr(found, "verify_message", "").rstrip("."),
        system=str(getattr(found, "strerror", None) or "the cause is unknown").lower(),
    )


def end_sentence(text: str) -> str:
    """Return the text with a full stop, unless it is a question."""
    return text if text.endswith("?") else f"{text}."


def status_text(status: int, name: str, settings: BackendSettings, location: str = "") -> str:
    """Return what the status of a failed request for the list of models means.  location: the target of a redirect."""
    if status in (401, 403):
        if settings.api_key:
            return f"the server refuses the API key (HTTP {status}); check backends.{name}.api_key"
        return f"the server needs an API key (HTTP {status}); set backends.{name}.api_key"
    if status == 404:
        # some services list no models below the URL of their API
        url, named = f"backends.{name}.url", settings.unused_version
        what = f"name its models in 'models', or check {url}" if named else f"is {url} the root of a model server?"
        return f"the server has no {settings.path_of(_MODELS)} (HTTP 404); {what}"
    if 300 <= status < 400:
        target = f" to {safe_name(location)}" if location else ""
        return f"the server redirects{target} (HTTP {status}); set backends.{name}.url to the new address"
    if status in (502, 503, 504):
        return f"the server is loading or overloaded (HTTP {status})"
    return f"the server failed (HTTP {status}); its log has the reason"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, from the outermost to the innermost."""
    while error:
        yield error
        if isinstance(error, OSError) and error.errno is None and (number := _NUMBER.search(str(error))):
            yield OSError(int(number[1]), os.strerror(int(number[1])))  # Python makes it an error of the right class
        if isinstance(error, BaseExceptionGroup):
            yield from error.exceptions
        error = error.__cause__ or error.__context__
