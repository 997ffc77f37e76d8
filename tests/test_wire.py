"""The cases of wire/ on servers that any machine can run: a real llama.cpp in three ways, and an Ollama before one."""

import io
from contextlib import nullcontext

import pytest
from live_ollama import live_ollama
from ollama import NAME
from wire.cases import CASES
from wire.gate import opened
from wire.server import Left, Listed, Refused, Server

from gateway import demo

UPSTREAM = {"upstream_model": demo.MODEL}
LLAMACPP = {
    "embeddings": Refused(says="--embeddings"),
    "ranks": Refused(says="--reranking"),
}
UNCONTINUED = {"continues": Listed("unenforced:continue_final_message")}
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
        "tools": Refused(code=None, says="--jinja"),
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
OLLAMA = Server(
    "ollama",
    {"kind": "ollama"},
    {"upstream_model": NAME},
    cannot={
        "cut_calls": Refused(502, "upstream_error", "invalid tool call arguments"),
        "embeddings": Refused(502, "upstream_error", "--embeddings"),
        "logit_bias": Listed("dropped:logit_bias"),
        "logprobs_beside_tools": Refused(code=None, says="logprobs is not supported with tools"),
        "ranks": Refused(says="no endpoint"),
        "tokens": Refused(says="no endpoint"),
        "unheard": Listed("dropped:made_up_yesterday"),
    },
)
OPTIONS = {  # of the demo's llama.cpp
    "parsed": (),
    "raw": ("--skip-chat-parsing", "--reasoning-format", "none"),
    "without_jinja": ("--no-jinja",),
    "prompted": ("--no-jinja",),
}
BEFORE = {"ollama": live_ollama}  # what stands between it and the gateway


@pytest.fixture(scope="module", params=[PARSED, RAW, WITHOUT_JINJA, PROMPTED, OLLAMA], ids=lambda server: server.name)
def gate(request):
    server = request.param
    with (
        demo.start("--threads", "1", *OPTIONS.get(server.name, ()), out=io.StringIO()) as below,
        BEFORE.get(server.name, nullcontext)(below) as url,
        opened(server, url) as gate,
    ):
        yield gate


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_means_the_same(gate, case):
    case.check(gate)
