"""The cases of wire/, and the doctor, on engines that are too large for every day, each with the small model: see `run`.

ENGINES_PYTHON=ENVIRONMENT/bin/python ENGINES_MODEL=FOLDER pytest tests/engines/on_engines.py
"""

import io
import os
import tempfile
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import httpx
import pytest

from gateway import demo
from gateway.cli.doctor import DoctorOptions, examine_servers
from gateway.doctor.checks import CHECKS
from gateway.doctor.findings import VerdictState
from support.ports import free_port
from support.wait import until_blocking
from wire.cases import CASES
from wire.gate import Gate, opened
from wire.server import Ability, Left, Listed, Refused, Server

PYTHON, MODEL = os.environ["ENGINES_PYTHON"], os.environ["ENGINES_MODEL"]
START_SECONDS, STOP_SECONDS = 300, 30
LOCAL = ("--host", "127.0.0.1", "--dtype", "float32")  # with half the bits several tokens are as likely

VLLM = (
    *(PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", MODEL, "--served-model-name", demo.MODEL),
    *("--max-model-len", "4096", "--max-num-seqs", "4", "--enforce-eager", *LOCAL),
)
# The parser of Qwen 3 takes an answer without a tag for a thought, so that a model which does not always think is asked to.
PARSERS = (
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"),
    *("--default-chat-template-kwargs", '{"enable_thinking": false}'),
)
TRANSFORMERS = (str(Path(PYTHON).with_name("transformers")), "serve", MODEL, "--device", "cpu", *LOCAL)

HAS_NO: Mapping[Ability, Refused | Listed] = dict.fromkeys(
    ("embeddings", "ranks"), Refused(message="has no endpoint /v1/")
)
NO_ENDPOINT = Refused(message="no endpoint")

CALLS = ("tools", "tools_streamed", "parallel_calls")
CHOICES = ("one_call", "tool_choice_required", "tool_choice_named", "tool_choice_none")
HEEDED = ("json_schema", "stop", "n", "logprobs")
# Of the small model, and of what it is started with, everywhere: it sees no images, and what tools it is shown it calls.
ANYWHERE: Mapping[str, VerdictState] = MappingProxyType({"images": "unknown", "tool_choice_none": "wanting"})
SMALL: Mapping[str, VerdictState] = MappingProxyType({"context_window": "wanting"})
UNTOLD: Mapping[str, VerdictState] = MappingProxyType({"context_window": "unknown"})


class Examined(NamedTuple):
    """What the doctor finds: the `format` of the model, and the verdicts that are not good."""

    format: str
    verdicts: Mapping[str, VerdictState]


class Engine(NamedTuple):
    """command: what starts it, but for its port; examined: what is true of it and the model.

    lists: its models, so that none has to be named.
    ignores: what it takes in silence, which its kind tells.
    without: what cases need that has no meaning there; they are not for this engine.
    """

    server: Server
    command: tuple[str, ...]
    examined: Examined
    lists: bool = True
    ignores: tuple[str, ...] = ()
    without: frozenset[Ability] = frozenset()

    @property
    def cases(self):
        return [case for case in CASES if self.without.isdisjoint(case.needs)]


ENGINES = [
    Engine(
        Server(
            "vllm",
            {"kind": "vllm"},
            {"upstream_model": demo.MODEL, "format": "auto"},
            cannot=HAS_NO,
        ),
        (*VLLM, *PARSERS),
        Examined("native", {**ANYWHERE, **SMALL, "thoughts": "unknown"}),  # it is asked not to think
    ),
    Engine(
        Server(
            "vllm_raw",
            {"kind": "vllm"},
            {"upstream_model": demo.MODEL, "format": "hermes_json"},
            cannot=HAS_NO,
        ),
        VLLM,
        Examined("hermes_json", {**ANYWHERE, **SMALL, **dict.fromkeys(("thoughts", *CALLS, *CHOICES), "wanting")}),
    ),
    Engine(
        Server(
            "transformers",
            {"kind": "transformers"},
            {"upstream_model": MODEL, "format": "auto"},
            cannot={
                "blindness": Left(),
                "continues": Listed("dropped:continue_final_message"),
                "prefills": Left(),
                "embeddings": NO_ENDPOINT,
                "json_schema": Listed("unenforced:response_format"),
                "logprobs": Listed("dropped:logprobs"),
                "past_thoughts": Listed("dropped:messages.reasoning_content"),
                "ranks": NO_ENDPOINT,
                "repetition_penalty": Listed("dropped:repetition_penalty"),
                "tokens": NO_ENDPOINT,
                "top_k": Listed("dropped:top_k"),
                "unheard": Listed("dropped:made_up_yesterday"),
            },
        ),
        TRANSFORMERS,
        Examined(
            "hermes_json",
            {**ANYWHERE, **UNTOLD, "thoughts": "unknown", **dict.fromkeys((*CALLS, *CHOICES, *HEEDED), "wanting")},
        ),
        lists=False,  # there is no cache of models
        ignores=("logprobs", "n", "parallel_tool_calls", "response_format", "stop", "tool_choice"),
        without=frozenset(("overflow", "window")),  # it takes prompts for which there is memory
    ),
]

pytestmark = pytest.mark.timeout(START_SECONDS + STOP_SECONDS + 120)  # the first case of an engine waits for it


class Running(NamedTuple):
    """An engine at its URL, and the gateway in front of it."""

    engine: Engine
    url: str
    gate: Gate


@pytest.fixture(scope="module")
def running(request):
    with started(request.param.command) as url, opened(request.param.server, url) as gate:
        yield Running(request.param, url, gate)


@contextmanager
def started(command):
    """The URL of an engine that answers; it ends with the block."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (
        tempfile.TemporaryFile() as log,
        demo.child_server([*command, "--port", str(port)], log, STOP_SECONDS) as child,
    ):
        with suppress(TimeoutError):
            until_blocking(lambda: child.poll() is not None or answers(url), seconds=START_SECONDS, pause=0.5)
        if not answers(url):
            log.seek(0)
            pytest.fail(log.read()[-4000:].decode(errors="replace"))
        yield url


def answers(url):
    try:
        return httpx.get(f"{url}/health", trust_env=False, timeout=5).is_success
    except httpx.TransportError:
        return False


def examined(running, kind=None):
    """What the doctor finds of an engine and its model; the engine is known for what it is if no kind is said."""
    models = () if running.engine.lists else (running.engine.server.model["upstream_model"],)
    (server,) = examine_servers(DoctorOptions(url=running.url, kind=kind, models=models), io.StringIO())
    return server, server.models[0]


def the_verdicts_of_the_doctor_are_true(running):
    expected, (server, one) = running.engine.examined, examined(running)
    assert {name: verdict.state for name, verdict in one.verdicts.items()} == {
        **dict.fromkeys(CHECKS, "good"),
        **expected.verdicts,
    }
    assert (server.kind, server.ignores) == (running.engine.server.backend["kind"], ())
    assert (one.findings.format, one.findings.thought) == (expected.format, None)


def what_it_takes_in_silence_is_found_whatever_it_is(running):
    server, _ = examined(running, "openai")
    assert server.ignores == running.engine.ignores


def checks(engine):
    """Each with its name, and none that another engine has as well: pytest would put those together."""
    for check in (the_verdicts_of_the_doctor_are_true, what_it_takes_in_silence_is_found_whatever_it_is):
        yield check.__name__, partial(check)
    for case in engine.cases:
        yield str(case), lambda running, case=case: case.check(running.gate)


@pytest.mark.parametrize(
    ("running", "check"),
    [
        pytest.param(engine, check, id=f"{engine.server.name}-{name}")
        for engine in ENGINES
        for name, check in checks(engine)
    ],
    indirect=["running"],
    scope="module",
)
def test_it_means_the_same(running, check):
    check(running)
