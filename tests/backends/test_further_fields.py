"""Test that a field of chat is checked in a request of any API, before it is translated for a kind of backend."""

from typing import get_args

import pytest

from gateway.api.chat.schema import OPTIONAL
from gateway.backends.extra_fields import EXTENSIONS, FORMS
from gateway.config import KindName
from support.app import HELLO_MESSAGES, gateway, problem
from support.upstream import HELLO

BODIES = {
    "/v1/chat/completions": {"messages": HELLO_MESSAGES},
    "/v1/completions": {"prompt": "Hello"},
    "/v1/messages": {"messages": HELLO_MESSAGES, "max_tokens": 9},
    "/v1/responses": {"input": "Hello", "store": False},
}
NAMES = sorted({name.partition(".")[0] for name in {*OPTIONAL, *EXTENSIONS, *FORMS}})
MEMBERS = ("budget_tokens", "choice", "effort", "enable_thinking", "grammar", "json", "regex", "type")
VALUES = ("x", -7, {}, None, {name: [] for name in MEMBERS}, dict.fromkeys(MEMBERS, 5))


@pytest.mark.parametrize("kind", get_args(KindName))
@pytest.mark.parametrize("path", BODIES)
async def test_field_of_chat_with_any_value_is_no_internal_error(kind, path):
    async with gateway(HELLO, backend={"kind": kind}) as site:
        for name in NAMES:
            for value in VALUES:
                answer = await site.client.post(path, json={"model": "m", **BODIES[path], name: value})
                # HELLO is no response in the API of some kinds
                assert answer.status_code in (200, 400, 502), (name, value, answer.text)


@pytest.mark.parametrize("path", BODIES)
async def test_field_of_chat_with_an_invalid_value_is_refused(path):
    async with gateway(HELLO, backend={"kind": "lmstudio"}) as site:
        answer = await site.client.post(path, json={"model": "m", **BODIES[path], "response_format": "json"})
    if path == "/v1/messages":
        assert answer.status_code == 400 and "response_format" in answer.json()["error"]["message"]
    else:
        assert problem(answer) == (400, "invalid_request_error", "invalid_type", "response_format")
