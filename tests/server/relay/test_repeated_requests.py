"""Test that a model is asked once, but where the backend had closed a kept connection before the request came."""

import pytest

from support.app import gateway, problem
from support.upstream import CLOSE, chunk, completion_body, stream, whole

ANSWERS = {True: stream(chunk("Hi"), chunk(finish="stop")), False: whole(completion_body())}


def kept(seconds):
    return {"timeouts": {"reused": seconds}}


@pytest.mark.parametrize("streamed", [True, False])
async def test_request_on_a_closed_connection_is_sent_again_and_reported(streamed):
    answer = ANSWERS[streamed]
    async with gateway(answer, [CLOSE], answer, backend=kept(20)) as site:
        assert "x-gateway-warnings" not in (await site.chat(stream=streamed)).headers
        again = await site.chat(stream=streamed)
        assert (again.status_code, again.headers["x-gateway-warnings"]) == (200, "repaired:connection")
        assert len(site.upstream.posts) == 3


@pytest.mark.parametrize("streamed", [True, False])
async def test_request_that_a_backend_may_have_worked_on_is_not_sent_again(streamed):
    answer = ANSWERS[streamed]
    async with gateway(answer, [CLOSE], answer, backend=kept(0), model={"retries": 0}) as site:
        assert (await site.chat(stream=streamed)).status_code == 200
        assert problem(await site.chat(stream=streamed))[:3] == (502, "server_error", "upstream_lost")
        assert len(site.upstream.posts) == 2
