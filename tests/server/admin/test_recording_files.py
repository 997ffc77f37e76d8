"""Test the requests that are kept on disk: after a restart, of other workers, and unreadable files."""

import logging

import pytest

from gateway.errors import NotFound
from gateway.recording import EndEntry, Recording, RequestEntry, read_summary, summarize, write_lines
from gateway.server.admin import recording_files
from gateway.server.admin.recording_files import RecordingFiles
from support.app import gateway
from support.recordings import add, recorded
from support.upstream import HELLO, KEY, chunk, stream

LIST = "/admin/exchanges"
BODY = b'{"messages": [{"role": "user", "content": "Hello"}]}'


def written(folder, id, second=0, *, summary=True):
    """Write a recording as the recording writer does; return its file."""
    recording = Recording(id, f"2026-11-22T10:00:{second:02}.000+00:00", 1 << 20)
    add(recording, RequestEntry, path="/v1/chat/completions", body=BODY)
    recording.end(EndEntry(t=0.5, status=200, cut=False))
    known = summarize(recording, ()) if summary else None
    file = folder / f"2026-11-22T1000{second:02}000-{id}-abcdef.jsonl"
    file.write_bytes(b"".join(write_lines(recording, "0.2.0", redacted=False, summary=known)))
    return file


def warnings_of(caplog):
    return [line.message for line in caplog.records if line.levelno >= logging.WARNING]


def test_recording_files_are_listed_with_the_newest_last(tmp_path, monkeypatch):
    files = RecordingFiles(str(tmp_path))
    assert files.summaries() == []
    written(tmp_path, "b", 2)
    written(tmp_path, "a", 1)
    (tmp_path / "c.part").touch()
    assert [(one.id, one.prompt, one.status) for one in files.summaries()] == [("a", "Hello", 200), ("b", "Hello", 200)]
    monkeypatch.setattr(recording_files, "SUMMARIES", 1)
    assert [one.id for one in files.summaries()] == ["b"]


def test_recording_files_list_without_a_folder_is_empty(tmp_path):
    for folder in (None, str(tmp_path / "none")):
        assert RecordingFiles(folder).summaries() == []
    with pytest.raises(NotFound, match=r"Exchange 'a' is not in the inspector's memory\.$"):
        RecordingFiles(None).find("a", "")


def test_recording_file_is_found_by_id_and_start(tmp_path):
    for second in (1, 2):
        written(tmp_path, "a", second)
    files = RecordingFiles(str(tmp_path))
    newest, older = files.find("a", ""), files.find("a", "2026-11-22T10:00:01.000+00:00")
    assert (newest.started[17:19], older.started[17:19], older.over) == ("02", "01", True)
    assert files.find("a", "") is not newest and files.find("a", "") is files.find("a", "")
    with pytest.raises(NotFound, match="Exchange 'b' is not in the inspector's memory or recordings"):
        files.find("b", "")


def test_unreadable_recording_files_are_skipped_and_logged_once(tmp_path, caplog):
    written(tmp_path, "a")
    written(tmp_path, "b", summary=False)
    (tmp_path / "broken.jsonl").write_bytes(b'{"schema": "gateway.rec')
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    newer = written(tmp_path, "c").read_bytes().replace(b'"version":1', b'"version":9')
    (tmp_path / "newer.jsonl").write_bytes(newer)
    files = RecordingFiles(str(tmp_path))
    for _ in range(2):
        assert [one.id for one in files.summaries()] == ["a", "c"]
    assert files.unreadable == 4
    log_text = "\n".join(warnings_of(caplog))
    assert len(warnings_of(caplog)) == 4
    for reason in ("it has no summary; gateway 0.2.0 wrote it", "'broken.jsonl' is skipped: it is not a recording"):
        assert reason in log_text
    for reason in ("'gone.jsonl' is skipped: No such file or directory", "its version is 9"):
        assert reason in log_text


def test_recording_file_that_breaks_off_is_listed_and_not_shown(tmp_path):
    file = written(tmp_path, "a")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    files = RecordingFiles(str(tmp_path))
    assert [one.id for one in files.summaries()] == ["a"]
    with pytest.raises(
        NotFound, match=f"The recording '{file.name}' of exchange 'a' cannot be read: its end is missing"
    ):
        files.find("a", "")
    file.unlink()
    with pytest.raises(NotFound, match="is not in the inspector's memory or recordings"):
        files.find("a", "")


def test_summary_of_a_file_is_that_of_its_recording(tmp_path):
    summary = read_summary(written(tmp_path, "a").read_bytes().splitlines()[0])
    assert (summary.id, summary.endpoint, summary.duration, summary.entries) == ("a", "/v1/chat/completions", 0.5, 2)


# At a gateway


def on(folder, *, kept=True, **more):
    return {**recorded(folder, **more), "inspector": {"enabled": True, "recordings": kept}}


async def listed(site, **query):
    return (await site.client.get(LIST, params=query)).json()


async def test_requests_stay_in_the_inspector_after_a_restart(tmp_path):
    script = stream(chunk(f"Hi, {KEY}"), chunk(finish="stop"))
    async with gateway(script, **on(tmp_path)) as site:
        await site.chat(headers={"x-request-id": "kept"}, stream=True)
        (before,) = (await listed(site))["exchanges"]
    (file,) = tmp_path.glob("*.jsonl")
    assert file.stat().st_mode & 0o777 == 0o600 and KEY.encode() not in file.read_bytes()
    async with gateway(HELLO, **on(tmp_path)) as site:
        await site.chat(headers={"x-request-id": "new"})
        page = await listed(site)
        assert [(one["id"], one["kept"]) for one in page["exchanges"]] == [("new", True), ("kept", True)]
        assert page["total"] == 2 and page["unreadable"] == 0
        after = page["exchanges"][1]
        assert {**after, "entries": 0, "bytes": 0} == {**before, "entries": 0, "bytes": 0}
        detail = (await site.client.get(f"{LIST}/kept")).json()
        assert detail["newer"]["id"] == "new" and detail["older"] is None
        talk = (await site.client.get(f"{LIST}/kept/conversation")).json()
        assert talk["response"]["choices"][0]["text"] == f"Hi, {'*' * len(KEY)}"
        entries = (await site.client.get(f"{LIST}/kept/entries")).json()
        assert entries["over"] and entries["entries"][-1]["kind"] == "over"


async def test_recordings_are_not_shown_unless_configured(tmp_path):
    async with gateway(HELLO, **on(tmp_path, kept=False)) as site:
        await site.chat()
    assert [*tmp_path.glob("*.jsonl")]
    async with gateway(HELLO, **on(tmp_path, kept=False)) as site:
        assert (await listed(site))["exchanges"] == []


async def test_recordings_without_content_are_shown_without_it(tmp_path):
    async with gateway(HELLO, **on(tmp_path, content=False)) as site:
        await site.chat(messages=[{"role": "user", "content": "Anna"}])
    async with gateway(HELLO, **on(tmp_path)) as site:
        (one,) = (await listed(site))["exchanges"]
        assert one["prompt"] == "Xxxx"


async def test_each_worker_shows_the_recordings_of_all(tmp_path):
    async with gateway(HELLO, **on(tmp_path)) as other:
        await other.chat(headers={"x-request-id": "of-the-other"})
        await other.app.state.telemetry.flush()
        async with gateway(HELLO, **on(tmp_path)) as site:
            (one,) = (await listed(site))["exchanges"]
            assert (one["id"], one["kept"]) == ("of-the-other", True)
            missing = await site.client.get(f"{LIST}/none")
            assert (
                missing.json()["error"]["message"] == "Exchange 'none' is not in the inspector's memory or recordings."
            )
