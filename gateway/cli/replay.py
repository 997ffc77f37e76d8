"""The command `gateway replay`: recordings in, a report out."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import SameFileError, copyfile
from typing import TextIO

from msgspec import Struct, json

from gateway.cli.suggestions import unknown_format
from gateway.formats import canonical_name, format_names
from gateway.recording import RecordedResponse, UnreadableRecording, parse_recording, recorded_response
from gateway.replay.mock_backend import (
    MockBackend,
    MockRequest,
    Rechunk,
    RecordedCall,
    join_chunks,
    recorded_calls,
    split_every,
)
from gateway.replay.runner import ENDPOINTS, Outcome, ReplayOptions, diff_outcomes, outcome_of, replayed

_ALL = ("status", "problem", "said", "usage", "ledger", "answer")
_ELSEWHERE = ("problem", "said", "usage")  # to compare if the endpoint or the format differs


def parse_options(format: str | None, endpoint: str | None, cut: str | None, *, timed: bool = False) -> ReplayOptions:
    """Return the options of a replay.  Raises ValueError for an unknown format, endpoint or size."""
    if format is not None and format not in format_names():
        raise ValueError(unknown_format(format))
    if endpoint is not None and endpoint not in ENDPOINTS:
        raise ValueError(f"unknown endpoint {endpoint!r}; one of: {', '.join(ENDPOINTS)}")
    return ReplayOptions(canonical_name(format) if format else None, endpoint, _cut(cut) if cut else None, timed)


class ReplayReport(Struct, frozen=True):
    """The result of a replay.

    same: there is no difference; differences: lines that show them; reason: why a replay is not possible.
    response: the new response, None without a replay.
    """

    file: str
    same: bool
    differences: list[str] = []
    reason: str = ""
    response: RecordedResponse | None = None


def compare(paths: Sequence[Path], ways: ReplayOptions, out: TextIO, *, as_json: bool = False) -> bool:
    """Report the differences of each replay from its recording; True if there are none.

    as_json: write each report as a JSON object in a line.
    """
    same = True
    for file in _files(paths):
        report = _compared(file, ways)
        out.write(json.encode(report).decode() + "\n" if as_json else _in_words(report))
        same = same and report.same
    return same


def save_golden(paths: Sequence[Path], folder: Path, out: TextIO) -> None:
    """Copy each recording to a folder of tests, with the outcome of its replay as the expected result.

    Raises UnreadableRecording or OSError.
    """
    for file in _files(paths):
        now = outcome_of(asyncio.run(replayed(parse_recording(file.read_bytes()))))
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(SameFileError):
            copyfile(file, folder / file.name)
        golden_path(folder / file.name).write_bytes(json.format(json.encode(now), indent=1) + b"\n")
        out.write(f"{folder / file.name}\n")


def _cut(word: str) -> Rechunk:
    if word == "whole":
        return join_chunks
    size = 1 if word == "bytes" else int(word) if word.isdecimal() else 0
    if not size:
        raise ValueError(f"--cut should be a number of bytes, `bytes` or `whole`, not {word!r}")
    return split_every(size)


def _files(paths: Sequence[Path]) -> list[Path]:
    """Return the files, with all recordings of a folder in its place."""
    return [file for path in paths for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]


def _compared(file: Path, ways: ReplayOptions) -> ReplayReport:
    try:
        recording = parse_recording(file.read_bytes())
        now = asyncio.run(replayed(recording, ways))
    except UnreadableRecording as error:
        return ReplayReport(str(file), same=False, reason=str(error))
    members = _ELSEWHERE if ways.format or ways.endpoint else _ALL
    lines = diff_outcomes(outcome_of(recording), outcome_of(now), members)
    return ReplayReport(str(file), not lines, lines, response=recorded_response(now))


def _in_words(report: ReplayReport) -> str:
    if report.reason:
        return f"{report.file}: cannot be replayed: {report.reason}\n"
    lines = [f"{report.file}: {'unchanged' if report.same else 'differs'}\n"]
    return "".join([*lines, *(f"  {line}\n" for line in report.differences)])


def golden_path(file: Path) -> Path:
    """Return the path of the expected result of a recording."""
    return file.with_suffix(".golden.json")


def load_golden(file: Path) -> Outcome:
    """Read the expected result of a recording."""
    return json.decode(golden_path(file).read_bytes(), type=Outcome)


def serve(paths: Sequence[Path], host: str, port: int, out: TextIO, *, timed: bool) -> None:
    """Serve the recordings as models, until Ctrl-C.

    Raises UnreadableRecording if no recording can be played, and OSError.
    """
    tapes = dict(_tapes(_files(paths), out))
    if not tapes:
        raise UnreadableRecording("no recording can be replayed")
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(tapes, host, port, out, timed=timed))


def _tapes(files: Sequence[Path], out: TextIO) -> Iterator[tuple[str, list[RecordedCall]]]:
    """Yield each file's recorded calls with a model name for it."""
    for file in files:
        try:
            if items := recorded_calls(parse_recording(file.read_bytes())):
                yield re.sub(r"[^\w.-]", "_", file.stem), items
        except UnreadableRecording as error:
            out.write(f"{file}: {error}\n")


async def _serve(tapes: dict[str, list[RecordedCall]], host: str, port: int, out: TextIO, *, timed: bool) -> None:
    player = MockBackend(RecordingPicker(tapes).choose, tapes, timed=timed)
    async with player.serving(host, port) as url:
        out.write(f"serving {count_text(len(tapes))} of {url}/v1 - Ctrl-C stops it\n")
        out.flush()
        await asyncio.Event().wait()


def count_text(recordings: int) -> str:
    """Return the number of recordings with the models that they stand for."""
    return "1 recording as the model" if recordings == 1 else f"{recordings} recordings as the models"


class RecordingPicker:
    """Choose a recorded call for each request.

    A model name picks the next call of its recording.  With another name, the recordings take turns.
    """

    def __init__(self, tapes: dict[str, list[RecordedCall]]) -> None:
        self._tapes, self._next = tapes, dict.fromkeys(tapes, 0)
        self._names = [*tapes]
        self._others = 0

    def choose(self, request: MockRequest) -> RecordedCall:
        """Return the recorded call for a request."""
        name = request.model
        if name not in self._tapes:
            name = self._names[self._others % len(self._names)]
            self._others += 1
        items, place = self._tapes[name], self._next[name]
        self._next[name] = place + 1
        return items[place % len(items)]
