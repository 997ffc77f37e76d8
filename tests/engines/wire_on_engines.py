"""The cases of wire/ on engines that are too large for every day, each with the small model: see `run`, which starts this.

ENGINES_PYTHON=ENVIRONMENT/bin/python ENGINES_MODEL=FOLDER pytest tests/engines/wire_on_engines.py
"""

import os
import socket
import tempfile
import time
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from wire.cases import CASES
from wire.gate import opened
from wire.server import Ability, Left, Listed, Refused, Server

from gateway import demo

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

HAS_NO: Mapping[Ability, Refused | Listed] = dict.fromkeys(("embeddings", "ranks"), Refused(says="has no /v1/"))
NO_ENDPOINT = Refused(says="no endpoint")


class Engine(NamedTuple):
    """command: what starts it, but for its port.

    without: what cases need that has no meaning there; they are not for this engine.
    """

    server: Server
    command: tuple[str, ...]
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
    ),
    Engine(
        Server(
            "vllm_raw",
            {"kind": "vllm"},
            {"upstream_model": demo.MODEL, "format": "hermes_json"},
            cannot=HAS_NO,
        ),
        VLLM,
    ),
    Engine(
        Server(
            "transformers",
            {"kind": "transformers"},
            {"upstream_model": MODEL, "format": "auto"},
            cannot={
                "blindness": Left(),
                "continues": Listed("dropped:continue_final_message"),
                "embeddings": NO_ENDPOINT,
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
        without=frozenset(("overflow", "window")),  # it takes prompts for which there is memory
    ),
]

pytestmark = pytest.mark.timeout(START_SECONDS + STOP_SECONDS + 120)  # the first case of an engine waits for it


@pytest.fixture(scope="module")
def gate(request):
    with started(request.param.command) as url, opened(request.param.server, url) as gate:
        yield gate


@contextmanager
def started(command):
    """The URL of an engine that answers; it ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log, demo.running([*command, "--port", str(port)], log, STOP_SECONDS) as child:
        give_up = time.monotonic() + START_SECONDS
        while not answers(url):
            if child.poll() is not None or time.monotonic() > give_up:
                log.seek(0)
                pytest.fail(log.read()[-4000:].decode(errors="replace"))
            time.sleep(0.5)
        yield url


def answers(url):
    try:
        return httpx.get(f"{url}/health", trust_env=False, timeout=5).is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(
    ("gate", "case"),
    [pytest.param(engine, case, id=f"{engine.server.name}-{case}") for engine in ENGINES for case in engine.cases],
    indirect=["gate"],
    scope="module",
)
def test_it_means_the_same(gate, case):
    case.check(gate)
