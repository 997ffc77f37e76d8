"""Read the files of a configuration: the file itself, secrets, templates and certificates."""

import json
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.config import CheckedValue, TlsSettings, UnreadableFile
from gateway.formats.response_template.compiler import TemplateError, compile_template, find_template

_MAX = 1 << 20  # bytes of a secret file
_OF_TLS = ("certificate", "key")
FileStamp = tuple[int, ...]


def read_text(file: Path) -> str:
    """Return the text of a file, or raise UnreadableFile."""
    with _unreadable():
        return file.read_text("utf-8-sig")


def read_secret(file: Path) -> str:
    """Return the content of a small regular file without the newline at its end, or raise UnreadableFile."""
    with _unreadable():
        if not stat.S_ISREG(file.stat().st_mode):  # a pipe can be read only once, and may block for ever
            raise UnreadableFile("is not a regular file")
        with file.open("rb") as opened:
            raw = opened.read(_MAX + 1)
        if len(raw) > _MAX:
            raise UnreadableFile(f"is larger than {_MAX} bytes")
        return raw.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")


@contextmanager
def _unreadable() -> Iterator[None]:
    """Convert errors of reading to UnreadableFile."""
    try:
        yield
    except OSError as error:
        raise UnreadableFile(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"is not UTF-8 at byte {error.start}") from None
    except ValueError:
        raise UnreadableFile("cannot be read: no file can have this name") from None


class ConfigFileReader:
    """Read files relative to one folder.

    stamps: the stamp of each file just before its first read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.stamps: dict[Path, FileStamp | None] = {}

    def text(self, file: Path) -> str:
        """Return the text of a file, or raise UnreadableFile."""
        self.stamps.setdefault(file, file_stamp(file))
        return read_text(file)

    def secret(self, path: str) -> str:
        """Return the value of `${file:PATH}`, or raise UnreadableFile."""
        file = self._folder / path
        self.stamps.setdefault(file, file_stamp(file))
        try:
            return read_secret(file)
        except UnreadableFile as error:
            raise UnreadableFile(f"{file} {error}") from None

    def template(self, given: object) -> CheckedValue:
        """Return a template with its faults; `given` is the template itself or the path of its file."""
        if not isinstance(given, Mapping | str):
            return {}, [((), "should be a response template, or the path of a file that contains one")]
        try:
            template = find_template(self._json(self._folder / given)) if isinstance(given, str) else given
            compile_template(template)
        except UnreadableFile as error:
            return {}, [((), f"{self._folder / str(given)} {error}")]
        except TemplateError as error:
            return {}, error.faults
        return template, ()

    def _json(self, file: Path) -> Any:  # noqa: ANN401 - any decoded JSON
        text = self.text(file)
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise UnreadableFile(f"is not JSON: {error.msg} in line {error.lineno}") from None
        except RecursionError:
            raise UnreadableFile("is nested too deeply") from None
        except ValueError:
            raise UnreadableFile("contains a number with too many digits") from None

    def tls(self, given: Mapping[str, Any]) -> CheckedValue:
        """Return the TLS section with absolute paths, and the faults of its files; the schema checks its fields."""
        files = {key: (self._folder / given[key]).absolute() for key in _OF_TLS if isinstance(given.get(key), str)}
        for file in files.values():
            self.stamps.setdefault(file, file_stamp(file))
        whole = {**given, **{key: str(file) for key, file in files.items()}}
        try:
            tls = TlsSettings.model_validate(whole)
        except ValidationError:
            return given, ()
        from gateway.server.http.tls import certificate_errors  # noqa: PLC0415 - most gateways have no certificate

        return whole, certificate_errors(tls)


def file_stamp(file: Path) -> FileStamp | None:
    """Return a value that changes with the file behind a path; None while there is no file."""
    try:
        now = file.stat()
    except (OSError, ValueError):
        return None
    return now.st_mtime_ns, now.st_size, now.st_ino
