"""Test the lines about backends and the store at the start, with a check that needs no server."""

import logging
import queue
import threading

import pytest

from gateway.config import Config
from gateway.server.process.dependencies import DependencyCheck, DependencyWatch
from support.ports import free_port
from support.serve_process import config_of, living
from support.wait import DEADLINE

DOWN = {"state": "connection refused", "fails": True, "warns": True, "may_recover": True}
UP = {"state": "ok", "fails": False, "warns": False, "may_recover": False}


class Checks:
    """A check of backends whose results are given one by one; the store is well.  urls: the URLs of the backends."""

    def __init__(self):
        self.urls = queue.Queue()
        self._results = queue.Queue()

    def give(self, **result):
        """Give the next result."""
        self._results.put(result)

    def __call__(self, one):
        if one.key == "store":
            return DependencyCheck("store: ok", fails=False, warns=False, may_recover=False)
        self.urls.put(one.shown)
        result = self._results.get(timeout=DEADLINE)
        return DependencyCheck(f"{one.shown}: {result.pop('state')}", **result)


@pytest.fixture
def lines():
    """Collect the lines of the log, as level and text."""
    records, log = queue.Queue(), logging.getLogger("gateway")
    handler, level = logging.Handler(), log.level
    handler.emit = lambda record: records.put((record.levelname, record.getMessage()))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield records
    log.removeHandler(handler)
    log.setLevel(level)


def config_with(**backends):
    return Config.model_validate(
        {"backends": {name: {"url": url, "probe_seconds": 0.001} for name, url in backends.items()}}
    )


def ended():
    """Wait until the threads of all watches have ended."""
    for thread in threading.enumerate():
        if thread.name.startswith("check of "):
            thread.join(DEADLINE)
            assert not thread.is_alive()


def lines_about_backends(lines):
    """Return the lines of the log without those of the store."""
    return [line for _ in range(lines.qsize()) if (line := lines.get_nowait())[1] != "store: ok"]


def test_watch_logs_a_problem_and_the_recovery_once_each(lines):
    checks = Checks()
    for result in (DOWN, DOWN, DOWN, UP):
        checks.give(**result)
    DependencyWatch(checks).follow(config_with(b="http://b"))
    ended()
    assert lines_about_backends(lines) == [("WARNING", "http://b: connection refused"), ("INFO", "http://b: ok")]


def test_watch_checks_the_store_and_redis(lines):
    urls = {"store": {"url": "postgresql://ada:pw@db/gateway"}, "limits": {"url": "redis://:pw@cache/0"}}
    config = Config.model_validate({**urls, "backends": {"b": {"url": "http://b"}}})
    DependencyWatch(lambda one: DependencyCheck(one.shown, fails=False, warns=False, may_recover=False)).follow(config)
    ended()
    assert {lines.get_nowait()[1] for _ in range(3)} == {
        "http://b",
        "postgresql://ada:**********@db/gateway",
        "redis://:**********@cache/0",
    }


def test_watch_checks_only_new_and_changed_backends_again(lines):
    checks = Checks()
    watch = DependencyWatch(checks)
    watch.follow(config_with(b="http://b", c="http://c"))
    assert {checks.urls.get(timeout=DEADLINE) for _ in "bc"} == {"http://b", "http://c"}
    watch.follow(config_with(b="http://b", c="http://new", d="http://d"))
    assert {checks.urls.get(timeout=DEADLINE) for _ in "cd"} == {"http://new", "http://d"}
    for _ in range(4):
        checks.give(**UP)
    ended()
    assert {line for _, line in lines_about_backends(lines)} == {"http://b: ok", "http://new: ok", "http://d: ok"}


def test_watch_warns_of_a_configuration_without_backends(lines):
    watch = DependencyWatch(Checks())
    watch.follow(Config.model_validate({"inspector": {"enabled": True}}))
    ended()
    ((level, text),) = lines_about_backends(lines)
    assert level == "WARNING" and text.startswith("the configuration has no backends")
    assert "backends: {gpu: {url: http://127.0.0.1:8000}}" in text and "`gateway doctor --write`" in text


def test_watch_that_is_stopped_logs_nothing(lines):
    checks = Checks()
    watch = DependencyWatch(checks)
    watch.follow(config_with(b="http://b"))
    watch.stop()
    checks.give(**DOWN)
    ended()
    assert lines_about_backends(lines) == []


async def test_serve_reports_a_wrong_store_at_its_start(tmp_path):
    store = {"url": f"postgresql://ada:secret@127.0.0.1:{free_port()}/gateway"}
    async with living(tmp_path, config_of("http://127.0.0.1:1", tmp_path) | {"store": store}) as gateway:
        await gateway.wait_for("/gateway: connection refused; is PostgreSQL running?")
        assert "secret" not in gateway.output
        assert (await gateway.client.get("/health")).status_code == 200
