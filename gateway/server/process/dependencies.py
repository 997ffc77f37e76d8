"""Check what a configuration depends on: backends, the store, Redis, extras and the certificate.

The lines at the start and those of `gateway check --probe` come from here.  All checks block.  `DependencyWatch` runs
them while the gateway serves.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from pydantic import SecretStr

from gateway.config import BackendSettings, Config
from gateway.installation import missing_extras

_AGAIN = 10.0  # seconds between two checks of a store that fails
_log = logging.getLogger("gateway")
_NO_BACKENDS = (
    "the configuration has no backends, so the gateway serves no models; "
    "list your model servers, for example backends: {gpu: {url: http://127.0.0.1:8000}}; "
    "`gateway doctor --write` adds those on this machine"
)


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
    if key == "store":
        from gateway.server.process.store_check import store_problem  # noqa: PLC0415 - see above

        return store_problem(url)
    from gateway.server.process.redis_check import redis_problem  # noqa: PLC0415 - see above

    return redis_problem(url)


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
