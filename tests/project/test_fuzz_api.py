"""Fuzz the OpenAPI operations with schemathesis over sockets: no request breaks the gateway, wrong ones are refused."""

import json

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    negative_data_rejection,
    response_schema_conformance,
)
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fuzz.requests import check_refusal
from gateway.errors import Problem
from gateway.server.app import create_app
from support.app import settings as configured
from support.sampling import examples
from support.threaded_gateway import listening, served
from support.upstream import COUNTS, HELLO, completion_body

CHECKS = [
    not_a_server_error, response_schema_conformance, negative_data_rejection, allow_header_conformance,
]  # fmt: skip
OPENAPI = schemathesis.openapi.from_dict(create_app(configured("http://127.0.0.1:1")).openapi())
OPERATIONS = [found.ok() for found in OPENAPI.get_all_operations()]
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


# A backend that answers everything that it may be asked


async def _chat(request):
    request_body = await request.json()
    if request_body.get("stream"):
        return Response(b"".join(HELLO[1:-1]), media_type="text/event-stream")
    return JSONResponse(
        {
            **completion_body(),
            "choices": [{**completion_body()["choices"][0], "index": i} for i in range(request_body.get("n", 1))],
        }
    )


async def _completion(request):
    request_body = await request.json()
    prompts = (
        request_body["prompt"]
        if isinstance(request_body["prompt"], list) and not isinstance(request_body["prompt"][0], int)
        else [0]
    )
    count = len(prompts) * request_body.get("n", 1)
    body = {"choices": [{"index": i, "text": "Hi", "finish_reason": "stop"} for i in range(count)], "usage": COUNTS}
    if request_body.get("stream"):
        return Response(f"data: {json.dumps(body)}\n\ndata: [DONE]\n\n", media_type="text/event-stream")
    return JSONResponse(body)


async def _embeddings(request):
    input = (await request.json()).get("input")  # None beside messages
    count = len(input) if isinstance(input, list) and not isinstance(input[0], int) else 1
    return JSONResponse({"data": [{"index": i, "embedding": [0.6, 0.8]} for i in range(count)], "usage": COUNTS})


async def _rerank(request):
    count = len((await request.json())["documents"])
    return JSONResponse({"results": [{"index": i, "relevance_score": 0.5} for i in range(count)]})


async def _tokenize(_):
    return JSONResponse({"tokens": [1, 2], "count": 2})


async def _detokenize(_):
    return JSONResponse({"prompt": "Hello"})


BACKEND = Starlette(
    routes=[
        Route("/v1/chat/completions", _chat, methods=["POST"]),
        Route("/v1/completions", _completion, methods=["POST"]),
        Route("/v1/embeddings", _embeddings, methods=["POST"]),
        Route("/v1/rerank", _rerank, methods=["POST"]),
        Route("/tokenize", _tokenize, methods=["POST"]),
        Route("/detokenize", _detokenize, methods=["POST"]),
    ]
)


@pytest.fixture(scope="module")
def gateway():
    """Yield the URL of a gateway in front of the backend, and a client."""
    with (
        listening(BACKEND) as backend,
        served(configured(backend, backend={"kind": "vllm"})) as url,
        requests.Session() as session,
    ):
        yield url, session


# What is stored there before, by the beginnings of the paths where it stands
HELLO_MESSAGE = {"id": "msg_1", "role": "user", "content": "Hello"}
STORED = {
    "/v1/chat/completions": {"model": "m", "messages": [HELLO_MESSAGE], "store": True, "metadata": {"a": "b"}},
    "/v1/responses": {"model": "m", "input": [HELLO_MESSAGE], "background": True},
    "/v1/conversations": {"items": [HELLO_MESSAGE]},
}


def known_ids(url, session, operation):
    """Return ids that exist for paths of this operation."""
    for path, body in STORED.items():
        if operation.path.startswith(f"{path}/{{id}}"):
            answers = [session.post(url + path, json=body) for _ in range(3)]
            return [{"id": answer.json()["id"], "item_id": "msg_1"} for answer in answers]
    return [{"id": "m"}]


def check_error(answer):
    """Check an error in the form of its API."""
    body = answer.json()
    error = body["error"]
    if body.get("type") == "error":  # of Anthropic's API, which has no codes
        assert error.keys() >= {"type", "message"} and [body["request_id"]] == answer.headers["request-id"]
    else:
        check_refusal(Problem(answer.status_code, error["message"], error["code"], error["param"]))


# hypothesis sees that somebody else draws lots meanwhile: the gateway, in its thread.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_api_survives_generated_requests_and_refuses_wrong_ones(operation, gateway):
    url, session = gateway
    count = examples(60 if operation.body else 12)
    known = known_ids(url, session, operation)

    @settings(max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=[*HealthCheck])
    @given(case=st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in MODES)), data=st.data())
    def check(case, data):
        if data.draw(st.booleans()):
            ids = data.draw(st.sampled_from(known))
            case.path_parameters.update({name: id for name, id in ids.items() if name in case.path_parameters})
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = "m"
        answer = case.call(base_url=url, session=session)
        if answer.status_code != 426:  # of a WebSocket, which no such request opens
            case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400:
            check_error(answer)

    check()
