"""Test that a replay gives the recorded result for any chunking, and shows differences."""

import asyncio
import io
import json
import re
import signal
import subprocess
import sys
from functools import partial

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert

from gateway import __version__
from gateway.cli import replay as command
from gateway.recording import (
    EndEntry,
    PreparedEntry,
    ResponseDataEntry,
    UnreadableRecording,
    UpstreamDataEntry,
    parse_recording,
    redact,
    write_lines,
)
from gateway.replay.mock_backend import MockBackend, recorded_calls, split_every
from gateway.replay.mock_backend import join_chunks as in_one_piece
from gateway.replay.runner import Outcome, ReplayOptions, diff_outcomes, outcome_of, replayed
from gateway.server.upstream.model_metadata import LearnedMetadata
from support.app import gateway
from support.cli import run
from support.format_events import untraced
from support.pipeline import cut
from support.recordings import recorded as recording_section
from support.recordings import recordings
from support.sampling import examples
from support.upstream import CLOSE, COUNTS, HANG, HELLO, call, chunk, completion_body, frame, head, stream, whole
from support.wait import DEADLINE, undisturbed

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}]
OURS = [{"type": "function", "name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}]
CALLED = '<think>Bob asks</think><tool_call>{"name": "f", "arguments": {"a": "x\\u00e4y"}}</tool_call>'
PIECES = [CALLED[i : i + 5] for i in range(0, len(CALLED), 5)]
USED = frame(choices=[], usage=COUNTS)
THOUGHT = stream(*map(chunk, PIECES), chunk(finish="stop"), USED)
HERMES = {"model": {"format": "hermes_json"}}
MESSAGES_TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}}
PICTURE = "data:image/png;base64,iVBORw0KGgo="
NO = whole({"error": {"message": "no room", "code": 503}}, 503, retry_after="0")


def calling(name, arguments):
    """Return the script of a model that calls a tool in its text."""
    text = json.dumps({"name": name, "arguments": arguments})
    return stream(
        chunk("<think>Bob asks</think><tool_call>"), chunk(text), chunk("</tool_call>"), chunk(finish="stop"), USED
    )


# By name: scripts of the backend, the gateway, the question.
SITUATIONS = {
    "chat": ([THOUGHT], HERMES, ("chat", {"stream": True, "tools": TOOLS})),
    "chat, whole": ([whole(completion_body(CALLED))], HERMES, ("chat", {"tools": TOOLS})),
    "chat, whole of a stream": ([THOUGHT], HERMES, ("chat", {"tools": TOOLS})),
    "responses": ([THOUGHT], HERMES, ("respond", {"stream": True, "tools": OURS, "include": ["reasoning.encrypted_content"]})),
    "responses, whole": ([THOUGHT], HERMES, ("respond", {"tools": OURS})),
    "native calls": (
        [stream(chunk(tool_calls=call("f", '{"a":', id="c1")), chunk(tool_calls=call(arguments=' "b"}')), chunk(finish="tool_calls"), USED)],
        {}, ("chat", {"stream": True, "tools": TOOLS}),
    ),
    "messages": ([HELLO], {}, ("message", {"stream": True})),
    "messages, thoughts": ([calling("f", {"a": "Bob"})], HERMES, ("message", {"stream": True, "tools": [MESSAGES_TOOL]})),
    "messages, thoughts, whole": ([calling("f", {"a": "Bob"})], HERMES, ("message", {"tools": [MESSAGES_TOOL]})),
    "responses, custom tool": ([calling("f", {"input": "Bob\nis"})], HERMES, ("respond", {"stream": True, "tools": [{"type": "custom", "name": "f"}]})),
    "responses, local shell": ([calling("local_shell", {"command": ["ls", "Bob"]})], HERMES, ("respond", {"stream": True, "tools": [{"type": "local_shell"}]})),
    "responses, shell": ([calling("shell", {"commands": ["ls Bob"]})], HERMES, ("respond", {"tools": [{"type": "shell"}]})),
    "responses, patch": ([calling("apply_patch", {"type": "delete_file", "path": "Bob"})], HERMES, ("respond", {"tools": [{"type": "apply_patch"}]})),
    "responses, background": ([HELLO], {}, ("respond", {"background": True})),
    "responses, background stream": ([HELLO], {}, ("respond", {"background": True, "stream": True})),
    "a picture": ([stream(chunk("Bob", images=[{"type": "image_url", "image_url": {"url": PICTURE}}]), chunk(finish="stop"), USED)], {}, ("chat", {"stream": True})),
    "log-probabilities": (
        [stream(frame(choices=[{"index": 0, "delta": {"content": "Bob"}, "logprobs": {"content": [{"token": "Bob", "logprob": -1.5, "bytes": [66, 111, 98], "top_logprobs": []}]}}]), chunk(" is"), chunk(finish="stop"), USED)],
        {}, ("chat", {"stream": True, "logprobs": True}),
    ),
    "choices": ([HELLO, stream(chunk("Ho"), chunk(finish="length"), USED)], {"backend": {"ignores": ["n"]}}, ("chat", {"n": 2, "stream": True})),
    "signed thoughts": (
        [stream(chunk(thinking_blocks=[{"type": "thinking", "thinking": "Hm", "signature": "s1"}]), chunk("Bob"), chunk(finish="stop"), USED)],
        {}, ("chat", {"stream": True}),
    ),
    "another attempt": ([NO, HELLO], {}, ("chat", {"stream": True})),
    "refused": ([whole({"error": {"message": "maximum context length is 5 tokens"}}, 400)], {}, ("chat", {"stream": True})),
    "lost": ([[head(), chunk("Hi"), chunk(" Bob"), CLOSE]], {}, ("chat", {"stream": True})),
    "a response that is lost": ([[head(), chunk("Hi"), chunk(" Bob"), CLOSE]], {}, ("respond", {"stream": True})),
    "no head": ([[CLOSE]], {"model": {"retries": 0}}, ("chat", {})),
    "an open end": ([[*HELLO[:-1], HANG]], {}, ("chat", {"stream": True})),
    "silent": ([[head(), chunk("Hi"), HANG]], {"backend": {"timeouts": {"idle": 0.5}}}, ("chat", {"stream": True})),
    "no answer": ([whole(b"<html>", type="text/html")], {}, ("chat", {})),
    "a forced call that comes the second time": ([stream(chunk("No."), chunk(finish="stop"), USED), THOUGHT], HERMES, ("chat", {"stream": True, "tools": TOOLS, "tool_choice": "required"})),
    "what was said before": (
        [HELLO], {},
        ("respond", {"stream": True, "background": False, "prompt_cache_key": "k", "input": [
            {"type": "item_reference", "id": "msg_1"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
        ]}),
    ),
}  # fmt: skip
OF_A_STORE = "what was said before"
RECORDED = {}


def record(name, folder):
    """Run a situation with a recording gateway and return the recording."""
    scripts, known, (ask, fields) = SITUATIONS[name]
    sections = {**recording_section(folder), **known}

    async def ask_once():
        async with gateway(*scripts, **sections) as site:
            if name == OF_A_STORE:
                fields["input"][0]["id"] = (await site.respond()).json()["output"][0]["id"]
            await getattr(site, ask)(**fields)

    asyncio.run(undisturbed(ask_once, 0.3))  # one situation has a timeout of 0.5 s
    return recordings(folder)[-1]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return a function that records each situation once."""

    def one(name):
        if name not in RECORDED:
            RECORDED[name] = record(name, tmp_path_factory.mktemp("recordings"))
        return RECORDED[name]

    return one


def again(recording, **ways):
    return asyncio.run(undisturbed(partial(replayed, recording, ReplayOptions(**ways)), 0.3))


def sent(recording):
    """Return all bytes that were written, without ids and times."""
    data = b"".join(entry.data for entry in recording.entries if isinstance(entry, ResponseDataEntry))
    data = re.sub(rb'"(id|item_id|call_id|obfuscation|encrypted_content|signature)":"[^"]*"', rb'"\1":""', data)
    return re.sub(rb'"(created|created_at|completed_at)":\d+', rb'"\1":0', data)


def written_to(folder, recording, name="a.jsonl"):
    file = folder / name
    file.write_bytes(b"".join(write_lines(recording, __version__, redacted=False)))
    return file


def replay(*words):
    """Run the command; return exit code, standard output and standard error."""
    return run("replay", *map(str, words))


# The same


@pytest.mark.parametrize("name", [name for name in SITUATIONS if name != OF_A_STORE])
@pytest.mark.parametrize("pieces", [None, split_every(1), in_one_piece], ids=["recorded", "bytes", "whole"])
def test_replay_gives_the_recorded_bytes(recorded, name, pieces):
    before, now = recorded(name), again(recorded(name), cut=pieces)
    assert diff_outcomes(outcome_of(before), outcome_of(now), [field for field in Outcome.__struct_fields__]) == []
    if name not in ("choices", "a response that is lost") and not name.startswith("responses"):  # their order, `store`
        assert sent(now) == sent(before)


@pytest.mark.parametrize("name", SITUATIONS)
def test_replay_of_a_redacted_recording_means_the_same(recorded, name):
    shown = redact(recorded(name), (), contents=True)
    assert diff_outcomes(outcome_of(shown), outcome_of(again(shown)), command._ALL) == []


@untraced
@settings(max_examples=examples(8), deadline=None)
@given(st.data(), st.sampled_from(["chat", "responses", "native calls", "lost"]))
def test_replay_means_the_same_for_any_chunking(recorded, data, name):
    recording = recorded(name)
    body = b"".join(entry.data for entry in recording.entries if isinstance(entry, UpstreamDataEntry))
    pieces = [piece for piece in cut(data, body) if piece]
    now = again(recording, cut=lambda _: pieces)
    assert diff_outcomes(outcome_of(recording), outcome_of(now), command._ALL) == []


def test_replay_can_be_recorded_and_replayed_again(recorded, tmp_path):
    first = again(recorded("chat"))
    copy = parse_recording(written_to(tmp_path, first).read_bytes())
    assert outcome_of(again(copy)) == outcome_of(first) == outcome_of(recorded("chat"))


def test_replay_at_the_recorded_pace_means_the_same(recorded):
    assert outcome_of(again(recorded("chat"), timed=True)) == outcome_of(recorded("chat"))


@pytest.mark.parametrize(("name", "other"), [
    ("chat", "responses"), ("responses", "chat"), ("choices", "chat"), ("chat", "messages"), ("messages", "chat"), ("messages", "messages"),
])  # fmt: skip
def test_replay_at_another_endpoint_means_the_same(recorded, name, other):
    now = again(recorded(name), endpoint=other)
    assert diff_outcomes(outcome_of(recorded(name)), outcome_of(now), command._ELSEWHERE) == []
    assert (b"response.created" in sent(now)) == (other == "responses")


def test_replay_at_another_endpoint_converts_tools_and_tool_choice(recorded, tmp_path):
    recording = parse_recording(written_to(tmp_path, recorded("chat")).read_bytes())
    tools = [*TOOLS, {"type": "custom", "custom": {"name": "g"}}, {"type": "web_search"}]
    recording.entries[0].body = json.dumps(
        {"model": "m", "messages": [], "tools": tools, "tool_choice": "auto"}
    ).encode()
    now = json.loads(again(recording, endpoint="responses").entries[0].body)
    assert now["tools"] == [*OURS, {"type": "custom", "name": "g"}] and now["tool_choice"] == "auto"
    now = json.loads(again(recording, endpoint="messages").entries[0].body)
    assert [tool["name"] for tool in now["tools"]] == [tool["function"]["name"] for tool in TOOLS] + ["g"]
    assert [tool["input_schema"] for tool in now["tools"]] == [TOOLS[0]["function"]["parameters"], {"type": "object"}]
    assert "tool_choice" not in now
    recording.entries[0].path, recording.entries[0].body = "/v1/messages", json.dumps(now).encode()
    assert (
        json.loads(again(recording, endpoint="chat").entries[0].body)["tools"][0]["function"]["name"]
        == TOOLS[0]["function"]["name"]
    )


def test_replay_with_another_format_shows_differences(recorded):
    now = again(recorded("chat"), format="native")
    lines = diff_outcomes(outcome_of(recorded("chat")), outcome_of(now), command._ELSEWHERE)
    assert lines[0] == "said:" and any("Reasoning" in line and line.startswith("-") for line in lines)


# What cannot be played


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda one: one.entries.__delitem__(slice(1, -1)), "no backend was called"),
        (lambda one: setattr(one, "size", one.max_bytes + 1), "size limit"),
        (lambda one: setattr(one.entries[-1], "status", 499), "its client disconnected"),
        (lambda one: setattr(one.entries[4], "call", 0), "tools ran at the gateway"),
    ],
)
def test_replay_refuses_a_recording_that_cannot_be_played(recorded, tmp_path, change, why):
    recording = parse_recording(written_to(tmp_path, recorded("chat")).read_bytes())
    change(recording)
    with pytest.raises(UnreadableRecording, match=why):
        again(recording)


def test_replay_refuses_another_endpoint_for_completions(recorded, tmp_path):
    recording = parse_recording(written_to(tmp_path, recorded("chat")).read_bytes())
    recording.entries[0].path = "/v1/completions"
    with pytest.raises(UnreadableRecording, match="/v1/completions"):
        again(recording, endpoint="chat")


def test_replay_covers_a_backend_that_was_unreachable(tmp_path):
    async def run():
        dead = {"more_backends": {"dead": {"url": "http://127.0.0.1:9"}}}
        model = {"backends": [{"name": "dead"}, {"name": "up", "priority": 1}]}
        sections = recording_section(tmp_path)
        async with gateway(HELLO, model=model, **dead, **sections) as site:
            assert (await site.chat(stream=True)).status_code == 200

    asyncio.run(run())
    (recording,) = recordings(tmp_path)
    assert [(one.backend, one.status, one.end) for one in recorded_calls(recording)] == [
        ("dead", 0, "away"),
        ("up", 200, "end"),
    ]
    assert outcome_of(again(recording)) == outcome_of(recording)


def test_replay_restores_learned_model_metadata(tmp_path):
    async def run():
        more = {"more_models": {"other": {"backends": ["up"], "upstream_model": "o"}}}
        sections = {**recording_section(tmp_path), **more}
        async with gateway(HELLO, HELLO, backend={"kind": "llamacpp"}, model={"format": "auto"}, **sections) as site:
            site.upstream.shown["/props"] = whole({"chat_template": "<|tool_calls|>"})
            await site.chat()
            await site.chat(model="other")

    asyncio.run(run())
    for recording in recordings(tmp_path):
        (then,), (now,) = (
            [one for one in each.entries if isinstance(one, PreparedEntry)] for each in (recording, again(recording))
        )
        assert len(then.learned) == 1 and convert(then.learned, list[LearnedMetadata]) == now.learned
        assert (then.format, then.reason) == (now.format, now.reason)


def test_replay_covers_a_fallback_model(tmp_path):
    async def run():
        more = {"more_models": {"other": {"backends": ["up"], "upstream_model": "o"}}}
        sections = recording_section(tmp_path)
        async with gateway(
            whole({}, 500), HELLO, model={"retries": 0, "fallback": ["other"]}, **more, **sections
        ) as site:
            assert (await site.chat()).headers["x-gateway-warnings"] == "translated:model"

    asyncio.run(run())
    (recording,) = recordings(tmp_path)
    assert outcome_of(again(recording)) == outcome_of(recording)


def test_replay_fails_if_it_needs_more_upstream_calls(recorded, tmp_path):
    recording = parse_recording(written_to(tmp_path, recorded("another attempt")).read_bytes())
    place = next(i for i, entry in enumerate(recording.entries) if getattr(entry, "call", 1) == 2)
    del recording.entries[place:-1]
    assert outcome_of(again(recording)).problem == "upstream_error"


def test_replay_sends_an_invalid_request_as_it_was(recorded, tmp_path):
    recording = parse_recording(written_to(tmp_path, recorded("chat")).read_bytes())
    recording.entries[0].body = b"{"
    assert outcome_of(again(recording)).status == 400


# The command


def test_replay_command_compares_each_file(recorded, tmp_path):
    written_to(tmp_path, recorded("chat"))
    other = parse_recording(written_to(tmp_path, recorded("responses"), "b.jsonl").read_bytes())
    assert replay(tmp_path) == (0, f"{tmp_path}/a.jsonl: unchanged\n{tmp_path}/b.jsonl: unchanged\n", "")
    other.entries[-1].ledger = ["dropped:x"]
    written_to(tmp_path, other, "b.jsonl")
    (tmp_path / "c.jsonl").write_text("{}")
    code, out, _ = replay(tmp_path, "--cut", "whole")
    assert code == 1
    assert out.splitlines()[1:3] == [f"{tmp_path}/b.jsonl: differs", "  ledger:"] and '  - "dropped:x"' in out
    assert out.splitlines()[-1].startswith(f"{tmp_path}/c.jsonl: cannot be replayed: it is not a recording")


def test_replay_command_prints_a_line_of_json_for_each_file(recorded, tmp_path):
    written_to(tmp_path, recorded("chat"))
    (tmp_path / "b.jsonl").write_text("{}")
    code, out, _ = replay(tmp_path, "--json")
    first, second = map(json.loads, out.splitlines())
    assert code == 1 and (first["same"], first["differences"], first["reason"]) == (True, [], "")
    assert first["response"]["status"] == 200 and first["response"]["choices"][0]["finish_reason"]
    assert not second["same"] and second["reason"].startswith("it is not a recording") and second["response"] is None


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--cut", "bytes"], 0),
        (["--cut", "100", "--timed"], 0),
        (["--endpoint", "responses"], 0),
        (["--format", "hermes"], 0),
        (["--format", "native"], 1),
    ],
)
def test_replay_command_applies_its_options(recorded, tmp_path, options, code):
    assert replay(written_to(tmp_path, recorded("chat")), *options)[0] == code


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cut", "0"], "should be a number of bytes"),
        (["--format", "nonsense"], "unknown format 'nonsense'"),
        (["--endpoint", "embeddings"], "unknown endpoint"),
        (["--serve"], "no recording can be replayed"),
    ],
)
def test_replay_command_reports_wrong_usage(tmp_path, options, message):
    code, _, err = replay(tmp_path, *options)
    assert code == 2 and message in " ".join(err.split())


def test_replay_command_reports_a_missing_file(tmp_path):
    code, _, err = replay(tmp_path / "no.jsonl")
    assert code == 2 and "No such file" in err


def test_replay_command_makes_a_test_of_a_recording(recorded, tmp_path):
    file = written_to(tmp_path, recorded("chat"))
    assert replay(file, "--test", "--into", tmp_path / "tests") == (0, f"{tmp_path}/tests/a.jsonl\n", "")
    assert replay(tmp_path / "tests" / "a.jsonl", "--test", "--into", tmp_path / "tests")[0] == 0
    assert command.load_golden(tmp_path / "tests" / "a.jsonl") == outcome_of(recorded("chat"))


def test_replay_command_serves_recordings_as_models(recorded, tmp_path):
    written_to(tmp_path, recorded("chat"), "one two.jsonl")
    written_to(tmp_path, recorded("another attempt"), "three.jsonl")
    (tmp_path / "four.jsonl").write_text("{}")
    unasked = parse_recording((tmp_path / "three.jsonl").read_bytes())
    del unasked.entries[1:-1]
    written_to(tmp_path, unasked, "five.jsonl")
    command_line = [sys.executable, "-m", "gateway", "replay", "--serve", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True) as server:
        assert "it is not a recording" in server.stdout.readline()
        url = re.search(r"serving 2 recordings as the models of (\S+) ", server.stdout.readline())[1]
        with httpx.Client(base_url=url, timeout=DEADLINE) as client:
            assert [one["id"] for one in client.get("/models").json()["data"]] == ["one_two", "three"]
            assert client.get("/props").status_code == 404
            answer = client.post("/chat/completions", json={"model": "one_two"})
            assert answer.headers["content-type"] == "text/event-stream" and answer.content == body_of("chat")
            attempts = [client.post("/chat/completions", json={"model": "three"}) for _ in range(3)]
            assert [one.status_code for one in attempts] == [503, 200, 503] and attempts[0].headers[
                "retry-after"
            ] == "0"
            others = [client.post("/chat/completions", content=body) for body in (b"{}", b"[]", b"{")]
            assert [one.status_code for one in others] == [200, 200, 200]
        server.send_signal(signal.SIGINT)
    assert server.returncode == 0


@pytest.mark.parametrize("count, text", [(1, "1 recording as the model"), (2, "2 recordings as the models")])
def test_replay_command_counts_the_recordings_that_it_serves(count, text):
    assert command.count_text(count) == text


def body_of(name):
    return b"".join(entry.data for entry in RECORDED[name].entries if isinstance(entry, UpstreamDataEntry))


async def test_replay_server_answers_404_to_unknown_requests():
    async with (
        MockBackend(lambda _: None, []).serving() as url,
        httpx.AsyncClient(base_url=url, verify=False) as client,
    ):
        assert (await client.post("/v1/chat/completions", json={})).status_code == 404


def test_replay_differences_are_limited_to_the_given_fields():
    one, other = Outcome(200, None, [], [], [], None), Outcome(500, None, [], [], ["a:b"], None)
    assert diff_outcomes(one, other, ["said"]) == []
    assert diff_outcomes(one, other, ["status"]) == ["status:", "@@ -1 +1 @@", "-200", "+500"]


def test_replay_recording_ends_with_its_outcome(recorded):
    assert isinstance(recorded("chat").entries[-1], EndEntry)
    assert command.compare([], ReplayOptions(), io.StringIO())
