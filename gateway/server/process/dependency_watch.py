"""Log the state of each backend, the store and Redis: at the start, after a change, and when it recovers."""

import logging
import threading
from collections.abc import Callable

from gateway.config import Config
from gateway.server.process.dependencies import Dependency, DependencyCheck, check_dependency, dependencies

_log = logging.getLogger("gateway")
_NO_BACKENDS = (
    "the configuration has no backends, so the gateway serves no models; "
    "list your model servers, for example backends: {gpu: {url: http://127.0.0.1:8000}}; "
    "`gateway doctor --write` adds those on this machine"
)


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
