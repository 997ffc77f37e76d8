"""Test the process that writes recordings: input, failures, start and end."""

import asyncio
import json
import logging
import os
import runpy
import signal
import sys
from contextlib import suppress
from io import BytesIO

import psutil
import pytest
from msgspec import Raw

from gateway.events import Annotation, TextDelta, Usage
from gateway.recording import EndEntry, Recording, RequestEntry, UpstreamDataEntry
from gateway.server.observability import recorder, recording_writer
from gateway.server.observability.recorder import RecordingWriter
from gateway.server.observability.recording_writer import RecordingFolder, WriteOrder, packed, unpacked, write_file
from support.app import gateway
from support.gateway_process import process
from support.recordings import add, events, recorded, recordings
from support.upstream import HELLO, Upstream
from support.wait import until


def order(folder, *event_list, id="1", files=9, size=1 << 20):
    recording = Recording(id, "2026-11-22T10:00:00.000+00:00", 1 << 20)
    add(recording, RequestEntry, path="/v1/chat/completions", headers={}, body=b"{}")
    add(recording, UpstreamDataEntry, call=1, data=b"\xff", events=event_list)
    recording.end(EndEntry(t=0.0, status=200, cut=False))
    return WriteOrder(
        recording.id,
        recording.started,
        recording.entries,
        recording.size,
        recording.max_bytes,
        RecordingFolder(str(folder), files, size, content=True),
        [b"k3y"],
    )


def sent(*messages):
    return b"".join(len(one).to_bytes(recording_writer.LENGTH, "big") + one for one in messages)


def warnings_of(caplog):
    return [line.message for line in caplog.records if line.levelno >= logging.WARNING]


def others():
    return psutil.Process().children()


# What it is told


def test_writer_order_is_decoded_as_encoded(tmp_path):
    given = order(tmp_path, TextDelta(0, "ä"), Annotation(0, Raw(b'{"a":\n[1]}')), Usage(1 << 70, 1))
    assert unpacked(packed(given)) == given
    write_file(given)
    (found,) = recordings(tmp_path)
    assert events(found.entries[1]) == [
        {"event": "Text", "choice": 0, "text": "ä"},
        {"event": "Annotation", "choice": 0, "json": {"a": [1]}},
        {"event": "Usage", "prompt": 1 << 70, "completion": 1},
    ]


def test_writer_writes_in_order_and_reports_failures(tmp_path):
    (tmp_path / "file").touch()
    unsound, last = packed(order(tmp_path, id="k3y")).replace(b"k3y", b"\xff\xff\xff"), packed(order(tmp_path, id="2"))
    failures = BytesIO()
    orders = sent(packed(order(tmp_path)), packed(order(tmp_path / "file")), unsound, b"?", last, last)
    recording_writer.main(BytesIO(orders[:-1]), failures)
    folder, text, nothing = failures.getvalue().decode().splitlines()
    assert folder in ("File exists", "Not a directory")
    assert text.startswith("UnicodeDecodeError in _failure, line ") and nothing.startswith(
        "ValidationError in _failure"
    )
    assert [one.id for one in recordings(tmp_path)] == ["1", "2"], "the last one did not come to its end"


@pytest.mark.parametrize(("files", "size", "left"), [(2, 1 << 20, ["b", "c"]), (9, 1000, ["c"]), (9, 1, [])])
def test_writer_deletes_the_oldest_beyond_count_or_size(tmp_path, files, size, left):
    for id in ("a", "b", "c"):
        write_file(order(tmp_path, id=id, files=files, size=size))
    assert [one.id for one in recordings(tmp_path)] == left


def test_writer_ignores_a_file_that_was_deleted_meanwhile(tmp_path):
    (tmp_path / "0.jsonl").symlink_to(tmp_path / "gone")
    write_file(order(tmp_path))
    assert len([*tmp_path.glob("2*.jsonl")]) == 1


def test_writer_process_ignores_signals_and_lowers_its_priority(tmp_path, monkeypatch):
    class Standard:
        buffer = BytesIO(sent(packed(order(tmp_path))))

    ignored, hurry = [], []
    monkeypatch.setattr(signal, "signal", lambda number, how: ignored.append((number, how)))
    monkeypatch.setattr(os, "nice", hurry.append)
    monkeypatch.setattr(sys, "stdin", Standard)
    runpy.run_path(recording_writer.__file__, run_name="__main__")
    assert ignored == [(signal.SIGINT, signal.SIG_IGN), (signal.SIGTERM, signal.SIG_IGN)] and hurry == [10]
    assert len(recordings(tmp_path)) == 1


# What becomes of it


async def test_writer_process_lives_from_the_first_recording_to_the_end(tmp_path):
    before = others()
    async with gateway(HELLO, **recorded(tmp_path)) as site:
        assert others() == before
        await site.chat()
        await until(lambda: len(others()) > len(before))
        await site.chat()
        await until(lambda: len([*tmp_path.glob("*.jsonl")]) == 2)
        assert len(others()) == len(before) + 1
    assert others() == before


async def test_writer_process_that_dies_is_logged_and_replaced(tmp_path, caplog):
    before = others()
    async with gateway(HELLO, **recorded(tmp_path)) as site:
        await site.chat(headers={"x-request-id": "a"})
        await until(lambda: len([*tmp_path.glob("*.jsonl")]), 1)
        (child,) = (one for one in others() if one not in before)
        child.kill()
        await until(lambda: len(warnings_of(caplog)), 1)
        await site.chat(headers={"x-request-id": "b"})
    assert warnings_of(caplog) == ["the recording writer exited with status -9; its pending recordings are lost"]
    assert [one.id for one in recordings(tmp_path)] == ["a", "b"]


async def test_writer_process_that_cannot_start_is_logged_and_retried(tmp_path, caplog, monkeypatch):
    async with gateway(HELLO, **recorded(tmp_path)) as site:
        with monkeypatch.context() as patch:
            patch.setattr(recorder, "_PROGRAM", (str(tmp_path / "none"),))
            assert (await site.chat(headers={"x-request-id": "a"})).status_code == 200
            await until(lambda: len(warnings_of(caplog)), 1)
        await site.chat(headers={"x-request-id": "b"})
    assert warnings_of(caplog) == ["recordings are lost: the recording writer cannot start: No such file or directory"]
    assert [one.id for one in recordings(tmp_path)] == ["b"]


async def test_writer_process_that_hangs_is_killed_at_the_end(tmp_path, caplog, monkeypatch):
    before = others()
    monkeypatch.setattr(recorder, "_SECONDS", 0)
    monkeypatch.setattr(recorder, "_PROGRAM", (sys.executable, "-c", "import signal; signal.pause()"))
    some = RecordingWriter()
    assert some.write(packed(order(tmp_path)))
    await until(lambda: len(others()) > len(before))
    await some.end()
    assert warnings_of(caplog) == ["recordings are lost: writing them took longer than 0 s"]
    assert others() == before


async def test_writer_process_inherits_no_secrets(tmp_path, monkeypatch):
    target_file = tmp_path / "said"
    program = f"import json, os, pathlib; pathlib.Path({str(target_file)!r}).write_text(json.dumps(dict(os.environ)))"
    monkeypatch.setattr(recorder, "_PROGRAM", (sys.executable, "-c", program))
    monkeypatch.setenv("GATEWAY_KEY", "s3cret")
    await RecordingWriter().end()
    assert {*json.loads(target_file.read_text())} <= {"PYTHONPATH", "LC_CTYPE"}


@pytest.mark.parametrize("orderly", [True, False], ids=["told", "killed"])
async def test_writer_process_finishes_if_the_gateway_is_stopped_or_killed(tmp_path, orderly):
    """Signals to all processes do not stop the writer, and it has no open port."""
    folder = tmp_path / "recordings"
    async with (
        Upstream([HELLO], ()).serving() as upstream,
        process(upstream.url, f"sqlite:///{tmp_path}/gateway.db", tmp_path, **recorded(folder)) as (running, client),
    ):
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
        await until(lambda: len([*folder.glob("*.jsonl")]), 1)
        (child,) = psutil.Process(running.pid).children()
        assert not child.net_connections("tcp") and os.getpgid(child.pid) != os.getpgid(running.pid)
        for number in (signal.SIGINT, signal.SIGTERM):
            child.send_signal(number)
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
        if not orderly:
            await until(lambda: len([*folder.glob("*.jsonl")]) == 2)
        running.send_signal(signal.SIGTERM if orderly else signal.SIGKILL)
        await running.wait()
    with suppress(psutil.NoSuchProcess):
        await asyncio.to_thread(child.wait, 20)
    assert len(recordings(folder)) == 2
