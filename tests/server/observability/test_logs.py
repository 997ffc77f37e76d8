"""Test the formats of the log: each line has the same form, and the id of its request."""

import contextvars
import gc
import json
import logging
import threading

import pytest

from gateway.config import LogSettings
from gateway.server.observability import access_log, logs
from gateway.server.observability.request_record import RequestRecord, set_current_record
from support.app import gateway
from support.serve_process import config_of, living, post_chat
from support.upstream import CLOSE, HELLO, Upstream
from support.wait import until

JSON, TEXT = LogSettings(format="json"), LogSettings(format="text")


def log_record(message="it is %s", *args, **more):
    """Return a record of the gateway's log."""
    return logging.makeLogRecord(
        {"msg": message, "args": args or ("lost",), "levelname": "WARNING", "name": "gateway", **more}
    )


def finished_request(id="req_1"):
    """Return the record of a request that has ended."""
    record = RequestRecord(id, "POST", "/v1/chat/completions", lambda _: None, status=200, model="m", backend="up")
    record.release()
    return record


@pytest.fixture
def log():
    """Yield the lines of a handler of standard error; it has the format of the last settings."""
    lines, handler, root = [], logs.LogHandler(), logging.getLogger()
    handler.emit = lambda record: lines.append(handler.format(record))
    root.addHandler(handler)
    yield lines
    root.removeHandler(handler)
    logs.apply_settings(LogSettings())


@pytest.mark.parametrize(
    ("format", "requests", "is_json"),
    [(None, None, False), (None, False, False), (None, True, True), ("text", True, False), ("json", None, True)],
)
def test_log_format_is_json_if_configured_or_with_the_access_log(format, requests, is_json):
    assert logs.writes_json(LogSettings(format=format, requests=requests)) is is_json


def test_log_line_in_json_has_time_level_logger_message_and_request_id(log):
    logs.apply_settings(JSON)
    logging.getLogger("gateway").warning("it is %s", "lost", extra={"request_id": "req_1"})
    logging.getLogger("uvicorn.error").warning("bad request")
    first, second = map(json.loads, log)
    assert first.pop("time").endswith("+00:00") and second.pop("time")
    assert first == {"level": "warning", "logger": "gateway", "message": "it is lost", "id": "req_1"}
    assert second == {"level": "warning", "logger": "uvicorn.error", "message": "bad request"}


def test_log_line_in_json_has_the_traceback_without_content(log):
    logs.apply_settings(JSON)
    logging.getLogger("gateway").error("it failed", exc_info=ValueError("their words"))
    assert json.loads(log[0])["exception"].strip() == "builtins.ValueError" and len(log[0].splitlines()) == 1


@pytest.mark.parametrize("settings", [JSON, TEXT])
def test_log_line_of_asyncio_has_no_results_in_any_format(settings):
    line = logs.log_formatter(settings).format(log_record("never retrieved\nfuture: <%s>", "theirs", name="asyncio"))
    assert "never retrieved" in line and "theirs" not in line


@pytest.mark.parametrize("settings", [JSON, TEXT])
def test_log_format_applies_to_the_access_log(settings, log):
    logs.apply_settings(LogSettings(format=settings.format, requests=True))
    access_log.log_request(finished_request())
    (line,) = log
    if settings is JSON:
        entry = json.loads(line)
        assert (entry["logger"], entry["id"], entry["status"]) == ("gateway.requests", "req_1", 200)
    else:
        assert (
            " INFO gateway.requests: 200  m at up  " in line and line.endswith("  req_1") and line.count("req_1") == 1
        )


def test_log_line_has_the_request_that_the_task_serves():
    running = RequestRecord("req_2", "POST", "/v1/responses", lambda _: None)
    context = contextvars.copy_context()
    context.run(set_current_record, running)
    ids = [
        context.run(logs.request_id_of, one)
        for one in (log_record(), log_record(request_id="req_1"), log_record(name="asyncio"))
    ]
    assert ids == ["req_2", "req_1", ""]
    running.release()
    assert context.run(logs.request_id_of, log_record()) == "", "the task has outlived its request"
    del running
    gc.collect()
    assert context.run(logs.request_id_of, log_record()) == "", "the record is freed"
    assert logs.request_id_of(log_record()) == ""


async def test_log_line_of_a_library_has_the_id_of_the_request(log):
    async with gateway(HELLO, logs={"format": "json"}) as site:

        @site.app.get("/library")
        async def library():
            logging.getLogger("library").warning("careful")

        await site.client.get("/library", headers={"x-request-id": "mine"})
    assert [(entry["message"], entry["id"]) for entry in map(json.loads, log)] == [("careful", "mine")]


def test_log_announces_the_start_as_text_or_as_an_entry(log, capsys):
    logs.apply_settings(TEXT)
    logs.announce("gateway listens", TEXT)
    assert capsys.readouterr().err == "gateway listens\n" and log == []
    logging.getLogger("gateway").setLevel(logging.INFO)
    logs.apply_settings(JSON)
    logs.announce("gateway listens", JSON)
    assert [json.loads(line)["message"] for line in log] == ["gateway listens"]
    logging.getLogger("gateway").setLevel(logging.NOTSET)


# Failures of processes and threads


def test_log_has_the_failure_that_ends_a_process(caplog):
    with pytest.raises(SystemExit) as ended, logs.logged_failure():
        raise ValueError("their words")
    (record,) = caplog.records
    assert (ended.value.code, record.levelname, record.exc_info[0]) == (1, "CRITICAL", ValueError)


def test_log_has_the_failure_of_a_thread(caplog):
    error = ValueError("their words")
    for value in (error, None):
        logs.log_thread_failure(threading.ExceptHookArgs((ValueError, value, None, None)))
    (record,) = caplog.records
    assert (record.getMessage(), record.exc_info[1]) == ("a thread failed", error)


# Processes


async def test_log_of_a_process_is_json_from_the_first_line_on(tmp_path):
    async with Upstream([[CLOSE]], ("m",)).serving() as upstream:
        sections = config_of(upstream.url, tmp_path, models={"m": {"retries": 0}}, logs={"format": "json"})
        async with living(tmp_path, sections) as process:
            answer = await post_chat(process)
            await until(lambda: "upstream_lost" in process.output and process.output.endswith("\n"))
            first, *entries = map(json.loads, [process.greeting, *process.output.splitlines()])
    assert first["message"].startswith("gateway listens on 127.0.0.1 port ")
    ids = [entry.get("id") for entry in entries if "upstream_lost" in entry["message"]]
    assert ids == [answer.headers["x-request-id"]]
