"""Watch the files of the configuration: read them again on a signal, or when one has changed."""

import logging
import time
from math import inf
from pathlib import Path

from gateway.config import Config, ConfigError, ConfigFault, is_exposed
from gateway.server.process.config_files import FileStamp
from gateway.server.process.config_source import ConfigSource

_log = logging.getLogger("gateway")
_HELD = ("host", "port", "workers", "drain_seconds")  # fields of `server` that a reload cannot change
_EXPOSED = "without keys, other machines could connect, because the gateway still listens on {}; restart it"


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
