"""Run the cases of wire/ on local backends: llama.cpp in several configurations, Ollama and a Messages server.

Each case runs on two of the backends. All cases run on all backends for `make conformance ARGS=wire` and with WIRE=all.
"""

import io
import os
from contextlib import ExitStack, nullcontext

import pytest

from gateway import demo
from support import live_messages
from support.ignoring_server import deaf
from support.ollama import NAME
from support.ollama_server import live_ollama
from wire.cases import CASES
from wire.gate import opened
from wire.server import Left, Listed, Refused, Server, Untold

UPSTREAM = {"upstream_model": demo.MODEL}
LLAMACPP = {
    "embeddings": Refused(message="--embeddings"),
    "ranks": Refused(message="--reranking"),
}
UNCONTINUED = {
    "continues": Listed("unenforced:continue_final_message"),
    "prefills": Listed("unenforced:prefill"),
}
PARSED = Server("parsed", {"kind": "llamacpp"}, {**UPSTREAM, "format": "native"}, cannot=LLAMACPP)
RAW = Server(
    "raw",
    {"kind": "llamacpp"},
    {**UPSTREAM, "format": "hermes_json"},
    cannot={**LLAMACPP, **UNCONTINUED},
)
WITHOUT_JINJA = Server(
    "without_jinja",
    {"kind": "llamacpp"},
    {**UPSTREAM, "format": "auto"},
    cannot={
        **LLAMACPP,
        **UNCONTINUED,
        "past_thoughts": Left(),
        "thought_switch": Left(),
        "tools": Refused(code=None, message="--jinja"),
    },
)
PROMPTED = Server(
    "prompted",
    {"kind": "llamacpp"},
    {**UPSTREAM, "tools": "prompt"},
    cannot={
        **LLAMACPP,
        **UNCONTINUED,
        "past_thoughts": Left(),
        "thought_switch": Left(),
    },
)
DEAF = Server(
    "deaf",
    {
        "kind": "openai",
        "ignores": [
            *("frequency_penalty", "logit_bias", "logprobs", "n", "parallel_tool_calls", "presence_penalty"),
            *("reasoning_effort", "response_format", "seed", "stop", "tool_choice", "top_logprobs"),
        ],
    },
    {**UPSTREAM, "tools": "prompt"},
    cannot={
        "completions": Refused(message="no endpoint /v1/completions"),
        "continues": Listed("forwarded:continue_final_message"),
        "embeddings": Refused(message="no endpoint /v1/embeddings"),
        "frequency_penalty": Listed("dropped:frequency_penalty"),
        "json_schema": Listed("unenforced:response_format"),
        "known": Left(),
        "logit_bias": Listed("dropped:logit_bias"),
        "logprobs": Listed("dropped:logprobs"),
        "logprobs_beside_tools": Listed("dropped:logprobs"),
        "past_thoughts": Left(),
        "prefills": Left(),
        "ranks": Refused(message="no endpoint /v1/rerank"),
        "repetition_penalty": Listed("forwarded:repetition_penalty"),
        "seed": Listed("dropped:seed"),
        "tokens": Refused(message="no endpoint"),
        "top_k": Listed("forwarded:top_k"),
        "window": Untold(),
        "thought_switch": Listed("dropped:reasoning_effort"),
    },
)
OLLAMA = Server(
    "ollama",
    {"kind": "ollama"},
    {"upstream_model": NAME},
    cannot={
        "cut_calls": Refused(502, "upstream_error", "invalid tool call arguments"),
        "embeddings": Refused(502, "upstream_error", "--embeddings"),
        "logit_bias": Listed("dropped:logit_bias"),
        "logprobs_beside_tools": Refused(code=None, message="logprobs is not supported with tools"),
        "ranks": Refused(message="no endpoint"),
        "tokens": Refused(message="no endpoint"),
        "unheard": Listed("dropped:made_up_yesterday"),
    },
)
ANTHROPIC = Server(
    "anthropic",
    {"kind": "anthropic"},
    {"upstream_model": live_messages.MODEL},
    cannot={
        "completions": Refused(message="use /v1/chat/completions"),
        "embeddings": Refused(message="no endpoint"),
        "frequency_penalty": Listed("dropped:frequency_penalty"),
        "logit_bias": Listed("dropped:logit_bias"),
        "logprobs": Listed("dropped:logprobs"),
        "logprobs_beside_tools": Listed("dropped:logprobs"),
        "past_thoughts": Listed("dropped:messages.reasoning_content"),
        "ranks": Refused(message="no endpoint"),
        "repetition_penalty": Listed("dropped:repetition_penalty"),
        "seed": Listed("dropped:seed"),
        "tokens": Refused(message="no endpoint"),
        "unheard": Listed("dropped:made_up_yesterday"),
    },
    beside_thinking=("temperature",),
)
OPTIONS = {  # of the demo's llama.cpp
    "parsed": (),
    "raw": ("--skip-chat-parsing", "--reasoning-format", "none"),
    "without_jinja": ("--no-jinja",),
    "prompted": ("--no-jinja",),
    "deaf": ("--no-jinja",),
}
BEFORE = {
    "ollama": live_ollama,
    "deaf": deaf,
    "anthropic": live_messages.live_messages,
}  # what stands between it and the gateway


SERVERS = (PARSED, RAW, WITHOUT_JINJA, PROMPTED, DEAF, OLLAMA, ANTHROPIC)
EACH = 3  # of so many servers a case meets one


def pytest_generate_tests(metafunc):
    every = os.environ.get("WIRE") == "all" or metafunc.config.getoption("outcomes", None)
    meetings = [
        pytest.param(server, case, id=f"{server.name}-{case}")
        for place, server in enumerate(SERVERS)
        for number, case in enumerate(CASES)
        if every or place % EACH == number % EACH
    ]
    metafunc.parametrize(("gate", "case"), meetings, indirect=["gate"])


class Running:
    """The server that runs, until another one is wanted."""

    def __init__(self):
        self.name, self.gate, self._stack = "", None, ExitStack()

    def start(self, server):
        """Start a server and a gateway before it, in place of those that run."""
        self.stop()
        below = self._stack.enter_context(
            demo.start_demo("--threads", "1", *OPTIONS.get(server.name, ()), out=io.StringIO())
        )
        url = self._stack.enter_context(BEFORE.get(server.name, nullcontext)(below))
        self.name, self.gate = server.name, self._stack.enter_context(opened(server, url))

    def stop(self):
        self.name = ""
        self._stack.close()


@pytest.fixture(scope="module")
def running():
    one = Running()
    yield one
    one.stop()


@pytest.fixture
def gate(running, request):
    """The gateway before a server, which the next case uses as well.

    A module's fixture would not do: pytest ends it after each test where another parameter is no fixture's.
    """
    if running.name != request.param.name:
        running.start(request.param)
    return running.gate


def test_wire_case_holds_on_a_backend(gate, case):
    case.check(gate)
