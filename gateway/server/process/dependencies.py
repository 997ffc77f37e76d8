"""Check what a configuration depends on: backends, the store, Redis, extras and the certificate.

The lines at the start and those of `gateway check --probe` come from here.  All checks block.  `DependencyWatch` runs
them while the gateway serves.
"""

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from pydantic import SecretStr

from gateway.config import BackendSettings, Config
from gateway.installation import install_command, missing_extras
from gateway.server.upstream.failure_text import cause_text

if TYPE_CHECKING:
    import asyncpg

_SECONDS = 5  # to connect, and for the response
_STORE, _LIMITS = "store.url", "limits.url"
_AGAIN = 10.0  # seconds between two checks of a store that fails
_log = logging.getLogger("gateway")
_NO_BACKENDS = (
    "the configuration has no backends, so the gateway serves no models; "
    "list your model servers, for example backends: {gpu: {url: http://127.0.0.1:8000}}; "
    "`gateway doctor --write` adds those on this machine"
)
# By the SQLSTATE of PostgreSQL's error: its text, and what to do.
_REFUSALS = {
    "28P01": "{error}; check the user and the password in store.url",
    "28000": "{error}; check the user in store.url, and pg_hba.conf of the server",
    "3D000": "{error}; create it, for example with `createdb`, or check store.url",
    "42501": "{error}; grant the user of store.url this right",
    "53300": "{error}; raise max_connections of the server",
    "57P03": "{error}; the gateway tries again",
}
_RIGHTS = """
SELECT pg_is_in_recovery(), to_regclass('alembic_version') IS NOT NULL, current_schema(), current_user,
    coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)
"""


class Dependency(Struct, frozen=True):
    """A server or database that the gateway uses.

    key: its place in the configuration, like backends.gpu or store.
    settings: a backend's settings, or the URL of the store or of Redis.
    shown: the URL without its password.
    """

    key: str
    settings: BackendSettings | SecretStr
    shown: str

    @property
    def probe_seconds(self) -> float:
        """Seconds between two checks while it fails; 0: none."""
        return self.settings.probe_seconds if isinstance(self.settings, BackendSettings) else _AGAIN


class DependencyCheck(Struct, frozen=True):
    """The result of a check.

    line: what to log; fails: the dependency has a problem; warns: the line is a warning.
    may_recover: a later check may succeed without a change of the configuration.
    """

    line: str
    fails: bool
    warns: bool
    may_recover: bool


def dependencies(config: Config) -> Iterator[Dependency]:
    """Yield the backends, the store, and Redis if it counts usage."""
    for name, settings in config.backends.items():
        yield Dependency(f"backends.{name}", settings, settings.url)
    yield Dependency("store", config.store.url, _shown(config.store, "url"))
    if config.limits.url:
        yield Dependency("limits", config.limits.url, _shown(config.limits, "url"))


def check_dependency(one: Dependency) -> DependencyCheck:
    """Check a dependency.  Each check imports what it needs, so that serving starts at once."""
    if isinstance(one.settings, BackendSettings):
        from gateway.server.upstream.backend_check import check_backend  # noqa: PLC0415 - see above

        found = check_backend(one.key.partition(".")[2], one.settings)
        return DependencyCheck(found.line, bool(found.problem), bool(found.problem or found.short), found.may_recover)
    problem = _url_problem(one.key, one.settings.get_secret_value())
    return DependencyCheck(f"{one.key}: {one.shown}: {problem or 'ok'}", *[bool(problem)] * 3)


def _url_problem(key: str, url: str) -> str:
    return store_problem(url) if key == "store" else redis_problem(url)


def store_problem(url: str, may_write: Callable[[Path], bool] = lambda path: os.access(path, os.W_OK)) -> str:
    """Return why the gateway cannot use the store at this URL, "" if it can.  It blocks.

    may_write: whether this process may write to a file or directory.
    """
    scheme, _, rest = url.partition("://")
    if scheme.startswith("sqlite"):
        return _sqlite_problem(rest.removeprefix("/").partition("?")[0], may_write)
    return asyncio.run(_postgresql_problem(rest))


def _sqlite_problem(name: str, may_write: Callable[[Path], bool]) -> str:
    if name in ("", ":memory:"):
        return ""
    file = Path(name).absolute()
    if problem := _path_problem(file, may_write):
        return f"{problem}, or check {_STORE}"
    if not file.exists():
        return ""
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True)) as db:
            db.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.Error as error:
        return f"the file cannot be used: {error}; move it away, or check {_STORE}"
    return ""


def _path_problem(file: Path, may_write: Callable[[Path], bool]) -> str:
    folder = file.parent
    if not folder.is_dir():
        return f"the directory {folder} does not exist; create it"
    if not may_write(folder):  # SQLite writes further files beside it
        return f"the directory {folder} is read-only for the gateway; make it writable"
    if file.exists() and not may_write(file):
        return "the file is read-only for the gateway; make it writable"
    return ""


async def _postgresql_problem(rest: str) -> str:
    try:
        import asyncpg  # noqa: PLC0415 - most gateways have no PostgreSQL
    except ImportError:
        return f"the package asyncpg is not installed; run: {install_command('asyncpg')}"
    try:
        connection = await asyncpg.connect(f"postgresql://{rest}", timeout=_SECONDS, command_timeout=_SECONDS)
        try:
            return await rights_problem(connection)
        finally:
            connection.terminate()
    except asyncpg.PostgresError as error:
        words = _REFUSALS.get(str(error.sqlstate), "PostgreSQL reports: {error}")
        return words.format(error=error)
    except (asyncpg.InterfaceError, ValueError) as error:
        return f"{_STORE} is invalid: {error}"
    except OSError as error:
        if isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
            return f"the server closed the connection; is it PostgreSQL, and does it accept the sslmode of {_STORE}?"
        return cause_text(error, program="PostgreSQL", url=_STORE, within=f" within {_SECONDS} s")


async def rights_problem(connection: "asyncpg.Connection") -> str:
    """Return which right a migration of the schema lacks."""
    standby, migrated, schema, user, may_create = await connection.fetchrow(_RIGHTS)
    if standby:
        return f"the server is a read-only standby; name the primary in {_STORE}"
    if schema is None:
        return f"the search path names no schema that exists; create one, or check search_path in {_STORE}"
    if not migrated and not may_create:
        return f"user {user!r} may not create tables; run: GRANT CREATE ON SCHEMA {schema} TO {user}"
    return ""


def redis_problem(url: str) -> str:
    """Return why the Redis at this URL cannot be used, "" if it can.  It blocks."""
    from redis import Redis  # noqa: PLC0415 - most gateways have no Redis
    from redis.backoff import NoBackoff  # noqa: PLC0415
    from redis.exceptions import AuthenticationError, RedisError  # noqa: PLC0415
    from redis.retry import Retry  # noqa: PLC0415

    timeouts = {"socket_timeout": _SECONDS, "socket_connect_timeout": _SECONDS}
    try:
        with Redis.from_url(url, retry=Retry(NoBackoff(), 0), **timeouts) as redis:
            redis.ping()
    except AuthenticationError:
        return f"Redis refuses the login; check the user and the password in {_LIMITS}"
    except (RedisError, OSError) as error:
        return _redis_failure_text(error)
    return ""


def _redis_failure_text(error: Exception) -> str:
    cause = error.__cause__ or error.__context__ or error
    if isinstance(cause, OSError):
        return cause_text(cause, program="Redis", url=_LIMITS, within=f" within {_SECONDS} s")
    return f"Redis reports: {str(error).rstrip('.')}; is it Redis, and is {_LIMITS} right?"


def static_checks(config: Config) -> Iterator[DependencyCheck]:
    """Check what has no server: the certificate, and the packages of extras."""
    if config.server.tls:
        from gateway.server.http.tls import certificate_validity  # noqa: PLC0415 - most gateways have no certificate

        found = certificate_validity(config.server.tls)
        yield DependencyCheck(f"server.tls.certificate: {found.text}", not found.valid, found.warns, may_recover=False)
    for key, command in missing_extras(config):
        line = f"{key}: needs packages that are not installed; run: {command}"
        yield DependencyCheck(line, fails=True, warns=True, may_recover=False)


def _shown(section: Any, key: str) -> str:  # noqa: ANN401 - each section
    return str(section.model_dump(mode="json")[key])


class DependencyWatch:
    """Check the dependencies of the current config, each in a thread of its own, so that a slow one delays nothing.

    One that may recover is checked again until it does.  From then on, requests report what becomes of it.

    check: checks one dependency; it may block.
    """

    def __init__(self, check: Callable[[Dependency], DependencyCheck] = check_dependency) -> None:
        self._check = check
        self._watched: dict[Dependency, threading.Event] = {}

    def follow(self, config: Config) -> None:
        """Check the dependencies that are new or changed in this config, and forget those that it lacks."""
        if not config.backends:
            _log.warning(_NO_BACKENDS)
        wanted = [*dependencies(config)]
        for one in [one for one in self._watched if one not in wanted]:
            self._watched.pop(one).set()
        for one in wanted:
            if one not in self._watched:
                stopped = self._watched[one] = threading.Event()
                what = f"check of {one.key}"
                threading.Thread(target=self._watch, args=(one, stopped), name=what, daemon=True).start()

    def stop(self) -> None:
        """Log nothing from now on."""
        for stopped in self._watched.values():
            stopped.set()

    def _watch(self, one: Dependency, stopped: threading.Event) -> None:
        check = self._check(one)
        _report(check, stopped)
        while check.may_recover and one.probe_seconds and not stopped.wait(one.probe_seconds):
            check = self._check(one)
            if not check.may_recover:
                _report(check, stopped)


def _report(check: DependencyCheck, stopped: threading.Event) -> None:
    if not stopped.is_set():
        _log.log(logging.WARNING if check.warns else logging.INFO, "%s", check.line)
