"""Test hostile JSON in the body of every endpoint that takes one, and hostile names in URLs."""

import json

import pytest

from support.app import gateway
from support.upstream import HELLO

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
INPUT = {"model": "m", "input": "hi"}
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": INPUT,
    "/v1/responses/compact": INPUT,
    "/v1/responses/input_tokens": INPUT,
    "/v1/completions": {"model": "m", "prompt": "hi"},
    "/v1/embeddings": INPUT,
    "/v1/rerank": {"model": "m", "query": "q", "documents": ["d"]},
    "/v1/tokenize": {"model": "m", "prompt": "hi"},
    "/v1/detokenize": {"model": "m", "tokens": [1]},
    "/v1/conversations": {"items": []},
    "/v1/conversations/conv_x": {"metadata": {}},
    "/v1/conversations/conv_x/items": {"items": [{"role": "user", "content": "hi"}]},
    "/v1/chat/completions/chatcmpl-x": {"metadata": {}},
}
# Text that is added after the last member of a valid body.
REFUSED = {
    **{f"the number {one[:20]}": f',"x":{one}' for one in ("1e999", "-1e999", "9" * 5000, "9" * 100_000, "NaN", "Infinity", "-Infinity", "01", "+1", "0x1", "1e", "--1")},
    **{f"the text {one}": f',"x":"{one}"' for one in (r"\ud800", r"\udc00", r"\ud800x", r"\ud800\ud800", r"\u12", "\0", "\x1f", "\n")},
    "a name that is half a character": r',"\ud800":1',
    **{f"{n} levels": f',"x":{"[" * n}{"]" * n}' for n in (600, 900, 960, 965, 970, 975, 1000, 100_000)},
    "objects in objects": ',"x":' + '{"a":' * 600 + "1" + "}" * 600,
    "levels without an end": ',"x":' + "[" * 100_000,
}  # fmt: skip
TAKEN = {
    "large whole numbers": ',"x":18446744073709551616,"y":-9223372036854775809,"z":' + "9" * 4000,
    "minus zero": ',"x":-0,"y":-0.0,"z":0e0,"a":1e-999',
    "digits without number": ',"x":0.' + "1" * 100_000,
    "nothing at all": r',"x\u0000y":"\u0000"',
    "a whole character": r',"x":"\ud83d\ude00"',
    "590 levels": f',"x":{"[" * 590}{"]" * 590}',
    "a wide one": f',"x":[{",".join(["[[]]"] * 2000)}]',
}
NOT_UTF8 = [
    b'{"x":"\xff"}',
    b'{"x":"\xed\xa0\x80"}',
    b'{"x":"\xc0\x80"}',
    b"\xef\xbb\xbf{}",
    "{}".encode("utf-16"),
    b"\0",
]


async def post_with(site, path, more):
    body = json.dumps(BODIES[path]).encode()
    return await site.client.post(path, content=body[:-1] + more.encode() + body[-1:])


def is_client_error(answer):
    """Return True for an error with a status of 4xx in the shape of the API."""
    return 400 <= answer.status_code < 500 and set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("path", BODIES)
async def test_request_body_that_is_not_json_is_refused(path):
    async with gateway(HELLO) as site:
        for more in REFUSED.values():
            answer = await post_with(site, path, more)
            assert is_client_error(answer) and answer.status_code == 400, more[:40]
        for body in NOT_UTF8:
            assert is_client_error(await site.client.post(path, content=body)), body
        assert not site.upstream.posts


@pytest.mark.parametrize("path", BODIES)
async def test_request_body_with_unusual_json_is_accepted(path):
    async with gateway(HELLO) as site:
        plain = await post_with(site, path, "")
        for more in TAKEN.values():
            answer = await post_with(site, path, more)
            assert answer.status_code == plain.status_code, (more[:40], answer.text)


async def test_request_member_given_twice_has_its_last_value_everywhere():
    async with gateway(HELLO) as site:
        for path in ("/v1/chat/completions", "/v1/responses"):
            body = json.dumps(BODIES[path])[:-1].replace("{", '{"temperature":9,"model":"other",', 1)
            answer = await site.client.post(path, content=(body + ',"temperature":0,"temperature":1}').encode())
            assert answer.status_code == 200, answer.text
            sent = site.upstream.posts[-1].body
            assert sent.count(b'"model"') == sent.count(b'"temperature"') == 1
            assert json.loads(sent)["temperature"] == 1
        nested = '{"model":"m","messages":[{"role":"user","role":"tool","role":"user","content":"a","content":"b"}]}'
        assert (await site.client.post("/v1/chat/completions", content=nested.encode())).status_code == 200
        assert site.upstream.posts[-1].json["messages"] == [{"role": "user", "content": "b"}]
        assert site.upstream.posts[-1].body.count(b'"content"') == 1


async def test_store_keeps_text_with_a_null_character():
    odd = "a\0b"
    call = {"id": odd, "type": "function", "function": {"name": odd, "arguments": odd}}
    messages = [
        *CHAT["messages"],
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": odd, "content": odd},
    ]
    items = [
        {"type": "function_call", "call_id": odd, "name": odd, "arguments": odd},
        {"type": "function_call_output", "call_id": odd, "output": odd},
        {"type": "message", "id": f"msg_{odd}", "role": "user", "content": odd},
    ]
    stored = {"store": True, "metadata": {odd: odd}}
    async with gateway(HELLO) as site:
        get = site.client.get
        chat = (await site.client.post("/v1/chat/completions", json={**CHAT, "messages": messages, **stored})).json()
        assert (await get(f"/v1/chat/completions/{chat['id']}")).json()["metadata"] == {odd: odd}
        assert odd in json.dumps(
            (await get(f"/v1/chat/completions/{chat['id']}/messages")).json(), ensure_ascii=False
        ).replace("\\u0000", "\0")
        found = (await get("/v1/chat/completions", params={f"metadata[{odd}]": odd})).json()["data"]
        assert [one["id"] for one in found] == [chat["id"]]
        answer = (await site.client.post("/v1/responses", json={**INPUT, "input": items, **stored})).json()
        assert (await get(f"/v1/responses/{answer['id']}")).json()["metadata"] == {odd: odd}
        assert len((await get(f"/v1/responses/{answer['id']}/input_items")).json()["data"]) == 3
        again = await site.client.post("/v1/responses", json={**INPUT, "previous_response_id": answer["id"]})
        assert again.status_code == 200


@pytest.mark.parametrize(
    "odd", ["%00", "%ff", "%ed%a0%80", "%0d%0ax-evil:%201", "a" * 5000, "%2e%2e", "%25", "9" * 5000]
)
async def test_url_with_any_name_is_answered_without_a_server_error(odd):
    lists = [
        f"/v1/chat/completions?{name}={odd}"
        for name in ("after", "limit", "order", "model", "metadata[a]", f"metadata[{odd}]", odd)
    ]
    names = ["responses/{}", "responses/{}/input_items", "conversations/{}", "conversations/{}/items", "conversations/c/items/{}",
             "chat/completions/{}", "chat/completions/{}/messages", "models/{}", "responses/r?starting_after={}&stream=true",
             "responses/r/input_items?after={}", "conversations/c/items?limit={}"]  # fmt: skip
    async with gateway(HELLO) as site:
        for path in [*lists, *(f"/v1/{name.format(odd)}" for name in names)]:
            for method in ("GET", "DELETE"):
                answer = await site.client.request(method, path)
                assert answer.status_code == 200 or is_client_error(answer), (method, path[:60])
                assert "x-evil" not in answer.headers
        for path in ("responses/{}/cancel", "conversations/{}", "conversations/{}/items", "chat/completions/{}"):
            assert is_client_error(
                await site.client.post(f"/v1/{path.format(odd)}", json={"metadata": {}, "items": []})
            )
