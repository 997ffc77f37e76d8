"""Find a configuration: in a file, else the servers on this machine, else the demo if requested.

`ConfigWatcher` reads the files again on a signal, or when one has changed.
"""

import asyncio
import json
import logging
import os
import shlex
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import TextIO

from gateway import demo, formats
from gateway.api.parameters import parameter_faults
from gateway.config import (
    Config,
    ConfigDocument,
    ConfigError,
    ConfigFault,
    KindName,
    UnreadableFile,
    build_config,
    has_open_pages,
    is_exposed,
    read_document,
)
from gateway.server.process.config_files import ConfigFileReader, FileStamp, file_stamp
from gateway.server.process.listener import listener_of
from gateway.server.upstream.discovery import PORTS, DiscoveredServer, discover, discovered_config

_log = logging.getLogger("gateway")
_HELD = ("host", "port", "workers", "drain_seconds")  # fields of `server` that a reload cannot change
_EXPOSED = "without keys, other machines could connect, because the gateway still listens on {}; restart it"
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # an address that reaches a server on all addresses
_EMPTY = "is empty; list your model servers, for example backends: {gpu: {url: http://127.0.0.1:8000}}"
# Without it llama.cpp lets the small model think to its limit before the JSON of a call that is required.
_DEMO = ("--reasoning-format", "none")


def reachable_root(host: str, port: int, scheme: str = "http") -> str:
    """Return a URL of the gateway that this machine can reach, without a path."""
    near = _WILDCARDS.get(host, host)
    return f"{scheme}://[{near}]:{port}" if ":" in near else f"{scheme}://{near}:{port}"


class NoServerFound(Exception):
    """No server to use was found; the text says what to do."""


def read_config(file: Path) -> Config:
    """Return the config of a file, with this process's environment; raise ConfigError."""
    return ConfigSource(file).read()


class ConfigSource:
    """A configuration file with the files that it names, and the command-line options that override it."""

    def __init__(self, file: Path, flags: Mapping[str, object] | None = None) -> None:
        self.file, self._flags = file, flags or {}
        self._files = ConfigFileReader(file.parent)

    def read(self) -> Config:
        """Return the current config of the file; raise ConfigError."""
        self._files = ConfigFileReader(self.file.parent)
        try:
            text = self._files.text(self.file)
            if not has_content(text):
                raise UnreadableFile(_EMPTY)
        except UnreadableFile as error:
            raise ConfigError([ConfigFault(str(self.file), None, "", str(error))]) from None
        return self.config(text)

    def config(self, text: str) -> Config:
        """Return the config that the file would give with this text; raise ConfigError."""
        document = read_document(text, str(self.file), os.environ, self._files.secret)
        return build_config(document, formats.format_names(), self._flags, self._files, parameter_faults)

    def stamps_when_read(self) -> Mapping[Path, FileStamp | None]:
        """Return the stamps of the files when they were read."""
        return self._files.stamps

    def current_stamps(self) -> Mapping[Path, FileStamp | None]:
        """Return the stamps of the files now."""
        return {file: file_stamp(file) for file in self._files.stamps}


def has_content(text: str) -> bool:
    """Return False for a YAML text of blank lines and comments."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())


@contextmanager
def resolve_config(
    source: ConfigSource | None,
    flags: Mapping[str, object],
    out: TextIO,
    *,
    demo_wanted: bool = False,
    ports: Mapping[int, KindName] = PORTS,
) -> Iterator[tuple[Config, str]]:
    """Yield the configuration to serve, and the startup banner; a demo server runs as long as the block.

    With a source, it gives the configuration.  Otherwise model servers on this machine are used; those that list no
    model are reported on `out`.  Without servers to use, `demo_wanted` starts the demo.  Raises ConfigError,
    NoServerFound, CannotListen or DemoError.
    """
    if source:
        config = source.read()
        yield config, _greeting_for(config, next(iter(config.models), None))
        return
    bare = build_config(
        ConfigDocument("command line"), formats.format_names(), flags
    )  # faults of options are reported first
    with ThreadPoolExecutor(1) as thread:  # an event loop may run in this thread already
        found = thread.submit(asyncio.run, discover(ports, skip=[bare.server.port])).result()
    serving = [server for server in found if server.models]
    for server in found:
        if not server.models:
            out.write(f"{_unused(server)}\n")
    if serving:
        yield _with_servers(serving, flags)
    elif demo_wanted:
        listener_of(bare.server).close()  # a taken port is reported before the model is loaded
        with demo.start_demo(*_DEMO, out=out) as url:
            yield _with_servers([DiscoveredServer("llamacpp", url, (demo.MODEL,))], flags)
    else:
        raise NoServerFound(_advice(ports))


def _unused(server: DiscoveredServer) -> str:
    """Return why the gateway does not use a server that lists no models."""
    if server.problem:
        return f"the gateway does not use the server at {server.url}: {server.problem}"
    return f"{server.kind} at {server.url} has no model yet: the gateway does not use it"


def startup_banner(
    host: str, port: int, model: str | None, *, key: bool = False, scheme: str = "http", pages: bool = True
) -> str:
    """Return the gateway's URL with a curl command for a request to the model, or for the models if none is known.

    key: a key is needed; the command takes it from the environment.
    pages: a browser may see the pages of the gateway; otherwise the text says how to open them.
    """
    root = reachable_root(host, port, scheme)
    header = ' -H "authorization: Bearer $GATEWAY_KEY"' if key else ""
    command = f"curl {shlex.quote(f'{root}/v1/models')}{header}"
    if model is not None:
        question = {"model": model, "messages": [{"role": "user", "content": "Hello!"}]}
        body = shlex.quote(json.dumps(question, ensure_ascii=False))
        url = shlex.quote(f"{root}/v1/chat/completions")  # zsh takes the brackets of an IPv6 address for a pattern
        command = f"curl {url} -H 'content-type: application/json'{header} \\\n    -d {body}"
    if pages:
        hint = f"Open {root}/ in a browser to connect a client and see its requests."
    else:
        hint = f"With `inspector: {{enabled: true}}` in the configuration, {root}/ shows its requests in a browser."
    return f"gateway listens on {root}/v1 - Ctrl-C stops it.  Try:\n\n  {command}\n\n{hint}\n"


def _greeting_for(config: Config, model: str | None) -> str:
    """Return the banner; "" for port 0, whose number is not known yet."""
    server = config.server
    if not server.port:
        return ""
    scheme = "https" if server.tls else "http"
    return startup_banner(
        server.host,
        server.port,
        model,
        key=config.auth.needs_key,
        scheme=scheme,
        pages=config.auth.needs_key or has_open_pages(config),
    )


def _with_servers(servers: list[DiscoveredServer], flags: Mapping[str, object]) -> tuple[Config, str]:
    config = build_config(discovered_config(servers), formats.format_names(), flags)
    return config, _greeting_for(config, servers[0].models[0])


def _advice(ports: Mapping[int, KindName]) -> str:
    text = ", ".join(f"{kind} {port}" for port, kind in ports.items())
    return (
        f"no model server with a model was found on this machine (ports tried: {text}); do one of these:\n"
        "  start a model server, wait until it is ready, and run this command again\n"
        "  list your servers in a file: gateway serve --config gateway.yaml\n"
        "  serve the small model of the demo: gateway serve --demo"
    )


class ConfigWatcher:
    """Detect changes of the configuration.

    config: the last valid one; source: None without a configuration file.
    """

    def __init__(self, config: Config, source: ConfigSource | None) -> None:
        self.config, self._source = config, source
        self._notified = False
        self._seen = source and source.stamps_when_read()
        self._certified = self._stamps_of_tls(config)
        self._wait()

    def request_reload(self, *_: object) -> None:
        """Read the configuration at the next `poll`, even if no file has changed.  Can be a signal handler."""
        self._notified = True

    @property
    def is_due(self) -> bool:
        """True if it is time to call `poll`."""
        return self._notified or time.monotonic() >= self._next

    def poll(self) -> Config | None:
        """Return the new config, None without one.  Invalid configurations are logged and ignored."""
        notified, self._notified = self._notified, False
        self._wait()
        if not self._source:
            _log.warning("the gateway has no configuration file to reload")
            return None
        changed = self._changed(self._source)
        return self._read(self._source) if notified or changed else None

    def _read(self, source: ConfigSource) -> Config | None:
        try:
            config = self._with_what_holds(source.read(), source)
        except ConfigError as error:
            _log.error("the new configuration is invalid, the previous one stays in use:\n%s", error)
            return None
        certified = self._stamps_of_tls(config)
        if (config, certified) == (self.config, self._certified):
            _log.info("the configuration was reloaded: no changes")
            return None
        self.config, self._certified = config, certified
        self._wait()
        _log.info("the configuration was reloaded: the changes apply from the next request")
        return config

    def _changed(self, source: ConfigSource) -> bool:
        """Return True if a file has changed since it was read.

        The change must be older than the last call, as a writer may still be writing.
        """
        before, self._seen = self._seen, source.current_stamps()
        return self._seen == before and self._seen != source.stamps_when_read() and self._seen[source.file] is not None

    def _stamps_of_tls(self, config: Config) -> list[FileStamp | None]:
        """Return the stamps of the certificate and its key, which change with the files."""
        tls, known = config.server.tls, self._source.stamps_when_read() if self._source else {}
        return [known.get(Path(file)) for file in (tls.certificate, tls.key)] if tls else []

    def _with_what_holds(self, new: Config, source: ConfigSource) -> Config:
        was = self.config.server
        held = _HELD if bool(new.server.tls) == bool(was.tls) else (*_HELD, "tls")
        if late := [f"server.{name}" for name in held if getattr(new.server, name) != getattr(was, name)]:
            _log.warning("%s: the change takes effect when the gateway is restarted", ", ".join(late))
        server = new.server.model_copy(update={name: getattr(was, name) for name in held})
        if is_exposed(server, new.auth):
            raise ConfigError([ConfigFault(str(source.file), None, "auth", _EXPOSED.format(server.host))])
        return new.model_copy(update={"server": server})

    def _wait(self) -> None:
        seconds = self.config.server.watch_seconds if self._source else 0
        self._next = time.monotonic() + (seconds or inf)
