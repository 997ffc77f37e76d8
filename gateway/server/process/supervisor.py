"""Listen, and run the gateway as one process, or as several that share one socket.

The supervisor of several processes has no application itself.  It alone handles signals and reads the configuration,
and sends configurations to its workers over pipes.  When its pipe closes, a worker stops.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import Empty, SimpleQueue

from gateway.config import Config
from gateway.server.observability import logs
from gateway.server.observability.metric_values import mark_ended, metrics_file, metrics_folder, remove_orphan
from gateway.server.process.config_source import ConfigSource, ConfigWatcher
from gateway.server.process.dependencies import DependencyWatch
from gateway.server.process.listener import listener_of

_log = logging.getLogger("gateway")
_spawn = multiprocessing.get_context("spawn")
_TICK = 0.1  # seconds between two checks for signals
_HANGUPS = [signal.SIGHUP] if sys.platform != "win32" else []
_STREAMS = (0, 1, 2)  # standard input, output and error


class Supervisor:
    """Run the workers; `run` blocks until a signal stops the gateway and all workers have ended."""

    def __init__(self, sock: socket.socket, watch: ConfigWatcher, dependencies: DependencyWatch) -> None:
        self._sock, self._watch, self._dependencies = sock, watch, dependencies
        self._stops = 0  # number of stop signals

    def run(self) -> None:
        """Start the workers, replace dead ones and pass on new configurations until SIGINT or SIGTERM."""
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGTERM, self._stop)
        with metrics_folder() as shared:
            self._run(shared)

    def _run(self, shared: Path | None) -> None:
        self._numbers, self._shared = count(), shared
        self._workers = [self._worker(place) for place in range(self._watch.config.server.workers)]
        while not self._stops:
            _wait_for_end(self._workers)
            self._replace_dead()
            if self._watch.is_due and (config := self._watch.poll()):
                for worker in self._workers:
                    worker.send_config(config)
                logs.apply_settings(config.logs)
                self._dependencies.follow(config)
        self._sock.close()  # the workers close theirs; otherwise the system would continue to accept connections
        self._end()

    def _worker(self, place: int) -> "WorkerProcess":
        file = metrics_file(self._shared, place, next(self._numbers))
        return WorkerProcess(self._watch.config, self._sock, file, logs_reloads=place == 0)

    def _stop(self, *_: object) -> None:
        self._stops += 1

    def _replace_dead(self) -> None:
        for place, worker in enumerate(self._workers):
            if (code := worker.process.exitcode) is not None and not self._stops:
                _log.warning("worker %d exited with status %d; a replacement starts", worker.process.pid, code)
                mark_ended(worker.file)
                self._workers[place] = self._worker(place)

    def _end(self) -> None:
        stops = 0
        while running := [worker for worker in self._workers if worker.process.is_alive()]:
            while stops < self._stops:
                stops += 1
                for worker in running:
                    worker.end(stops)
            _wait_for_end(running)


class WorkerProcess:
    """One worker process.

    file: for its metrics, None if workers share none; logs_reloads: it writes reloads to the audit log.
    """

    def __init__(self, config: Config, sock: socket.socket, file: Path | None, *, logs_reloads: bool) -> None:
        self.file = file
        self._pipe, theirs = _spawn.Pipe()
        self.process = _spawn.Process(target=run_worker, args=(config, sock, theirs, file, logs_reloads))
        self.process.start()
        theirs.close()

    def send_config(self, config: Config) -> None:
        """Send a new config to the worker."""
        with suppress(OSError):  # the worker is dead; its replacement starts with this config
            self._pipe.send(config)

    def end(self, times: int) -> None:
        """Send the stop signal: the second one makes the worker cancel its requests, the third one kills it."""
        (self.process.terminate if times < 3 else self.process.kill)()


class HangupHandler:
    """Handle SIGHUP: operators send it to reload the configuration, and the system when a terminal closes.

    terminals: file descriptors of the terminal that the process was started at.
    """

    def __init__(self, reload: Callable[[], None], terminals: Sequence[int]) -> None:
        self._reload, self._terminals = reload, terminals
        self._stopped = False

    def __call__(self, *_: object) -> None:
        """Reload, or stop as on SIGTERM if the terminal has closed."""
        if all(map(os.isatty, self._terminals)):
            self._reload()
        elif not self._stopped:  # a shell repeats the signal; a second SIGTERM would cut running responses
            self._stopped = True
            signal.raise_signal(signal.SIGTERM)


def _wait_for_end(workers: Iterable[WorkerProcess]) -> None:
    """Wait until one of the workers has ended, but not longer than 0.1 s."""
    wait([worker.process.sentinel for worker in workers], _TICK)


@logs.logged_failure()
def run_worker(config: Config, sock: socket.socket, pipe: Connection, file: Path | None, logs_reloads: bool) -> None:
    """Run a worker process until its pipe closes or a signal stops it."""
    # A terminal sends these signals to all processes, but only the supervisor handles them.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
    logs.configure_logging(config.logs)
    from gateway.server.observability.metric_values import SharedFolder  # noqa: PLC0415
    from gateway.server.process.worker import make_server  # noqa: PLC0415 - the supervisor does not need it

    queue: SimpleQueue[Config] = SimpleQueue()

    async def news() -> Config | None:
        with suppress(Empty):
            return queue.get_nowait()
        return None

    server = make_server(config, news, SharedFolder(file) if file else None, logs_reloads=logs_reloads)

    def listen() -> None:
        with suppress(EOFError, OSError):
            while True:
                queue.put(pipe.recv())
        server.should_exit = True

    threading.Thread(target=listen, daemon=True).start()
    server.serve_socket(sock)
    # The pipe has closed, so the supervisor is gone: a stop by its signal does not reach this line.
    remove_orphan(file)


def run_gateway(config: Config, *, greeting: str = "", source: ConfigSource | None = None) -> None:
    """Run the gateway until SIGINT, SIGTERM or the end of its terminal; then streams have `drain_seconds` to end.

    greeting: written to standard error when clients can connect.
    source: the source of the config, which is read again on SIGHUP and when its files change.  Raises CannotListen.
    """
    sock = listener_of(config.server)  # from now on, connections wait instead of being refused
    host, port = sock.getsockname()[:2]
    watch = ConfigWatcher(config, source)
    for number in _HANGUPS:
        under_nohup = signal.getsignal(number) == signal.SIG_IGN
        terminals = [] if under_nohup else [one for one in _STREAMS if os.isatty(one)]
        signal.signal(number, HangupHandler(watch.request_reload, terminals))
    logs.configure_logging(config.logs)
    logs.announce(greeting or f"gateway listens on {host} port {port}", config.logs)
    dependencies = DependencyWatch()
    dependencies.follow(config)
    try:
        with logs.logged_failure():
            if config.server.workers > 1:
                Supervisor(sock, watch, dependencies).run()
            else:
                _serve(config, sock, watch, dependencies)
    finally:
        dependencies.stop()


def _serve(config: Config, sock: socket.socket, watch: ConfigWatcher, dependencies: DependencyWatch) -> None:
    from gateway.server.process.worker import make_server  # noqa: PLC0415 - the supervisor does not need it

    async def news() -> Config | None:
        new = await asyncio.to_thread(watch.poll) if watch.is_due else None
        if new:
            dependencies.follow(new)
        return new

    make_server(config, news).serve_socket(sock)
