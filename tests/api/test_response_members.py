"""Test that each member of a backend's answer reaches the client, or a warning: in both APIs, whole and streamed."""

import json

import pytest

from support.app import gateway
from support.sse import events, payloads
from support.upstream import call, chunk, frame, stream, whole

ANSWER = {
    "citations": ["https://a.example/", "https://b.example/"],
    "kv_transfer_params": {"do_remote_decode": True, "remote_block_ids": [1, 2]},
    "metadata": {"weight_version": "default"},
    "metrics": {"time_to_first_token_ms": 12.5},
    "moderation": {"input": []},
    "never_seen": {"a": [1, {"b": None}], "c": "\u2028"},
    "prompt_logprobs": [None, {"1": {"logprob": -0.5}}],
    "prompt_token_ids": [1, 2],
    "prompt_filter_results": [{"prompt_index": 0}],
    "prompt_progress": {"total": 5, "processed": 5},
    "provider": "Fireworks",
    "search_results": [{"title": "A", "url": "https://a.example/"}],
    "service_tier": "flex",
    "sglext": {"cached_tokens_details": {"device": 4}},
    "system_fingerprint": "fp_1",
    "timings": {"prompt_n": 3, "predicted_n": 2, "draft_n": 0},
    "__verbose": {"index": 0, "stop_type": "eos"},
}
CHOICE = {
    "content_filter_results": {"hate": {"filtered": False}},
    "hidden_states": [[0.5]],
    "matched_stop": 151645,
    "native_finish_reason": "STOP",
    "never_seen_either": False,
    "routed_experts": "AAAA",
    "stop_reason": "###",
    "token_ids": [7, 8],
}
MESSAGE = {
    "audio": {"id": "audio_1", "data": "UklGRg==", "transcript": "Hi", "expires_at": 5},
    "provider_specific_fields": {"x": 1},
    "never_seen_at_all": [0],
    "reasoning_details": [{"type": "reasoning.encrypted", "data": "c2VhbGVk"}],
    "tool_plan": "First.",
}
SILENT = ("citations", "service_tier")  # members that a response has a place for
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
WHOLE = {
    "choices": [{"index": 0, "message": {"content": "Hi", **MESSAGE}, "finish_reason": "stop", **CHOICE}],
    "usage": USAGE,
    **ANSWER,
}
UNEXPECTED = {"__verbose", "never_seen", "never_seen_at_all", "never_seen_either", "routed_experts", "tool_plan"}


def streamed():
    first = {"index": 0, "delta": {"role": "assistant", "content": "H", **MESSAGE}, "finish_reason": None, **CHOICE}
    constant = {name: ANSWER[name] for name in ("provider", "service_tier", "system_fingerprint", "citations")}
    return stream(
        frame(choices=[first], **ANSWER), frame(**json.loads(chunk("i")[6:]), **constant), chunk(finish="stop")
    )


async def answers(*script, **fields):
    """Return the response of a chat and of the Responses API, each whole and streamed."""
    async with gateway(*script, **fields) as site:
        return [await ask(stream=stream) for ask in (site.chat, site.respond) for stream in (False, True)]


def warned(answer):
    """Return the warnings of a response, in its head and in its stream."""
    text = answer.headers.get("x-gateway-warnings", "")
    comments = [part for part in answer.text.split("\n\n") if part.startswith(": gateway-warnings ")]
    return {one for part in (text, *(part[19:] for part in comments)) for one in part.split(", ") if one}


def accumulated(frames):
    """Return the members of all frames, of their choice and of its deltas, as a client collects them."""
    answer, choice, message = {}, {}, {}
    for one in frames[:-1]:
        answer |= one
        for inner in one["choices"]:
            choice |= inner
            for name, value in inner["delta"].items():
                message[name] = message[name] + value if isinstance(message.get(name), str | list) else value
    return answer, choice, message


def contains(found, members):
    assert {name: found.get(name) for name in members} == members


async def test_member_of_any_name_reaches_a_chat_whole_and_streamed():
    async with gateway(whole(WHOLE), streamed()) as site:
        at_once, piecewise = await site.chat(), await site.chat(stream=True)
    body = at_once.json()
    contains(body, ANSWER)
    contains(body["choices"][0], CHOICE)
    contains(body["choices"][0]["message"], {**MESSAGE, "content": "Hi"})
    answer, choice, message = accumulated(payloads(piecewise.text))
    contains(answer, ANSWER)
    contains(choice, CHOICE)
    contains(message, {**MESSAGE, "content": "Hi"})
    assert warned(at_once) == {f"forwarded:{name}" for name in UNEXPECTED}
    assert warned(piecewise) - {"estimated:usage"} == {f"forwarded:{name}" for name in UNEXPECTED}


async def test_member_that_is_the_same_in_each_chunk_stays_in_each_frame():
    async with gateway(streamed()) as site:
        *frames, _ = payloads((await site.chat(stream=True, stream_options={"include_usage": True})).text)
    for name in ("provider", "service_tier", "system_fingerprint"):
        assert {frame.get(name) for frame in frames} == {ANSWER[name]}
    assert sum("citations" in frame for frame in frames) == 1
    assert all(frame["choices"] for frame in frames[:-1])


@pytest.mark.parametrize("streams", [False, True])
async def test_member_without_a_place_in_a_response_is_reported_as_dropped(streams):
    async with gateway(streamed() if streams else whole(WHOLE)) as site:
        answer = await site.respond(stream=streams)
    response = events(answer.text)[-1]["response"] if streams else answer.json()
    assert response["service_tier"] == "flex"
    assert [one["url"] for one in response["output"][0]["content"][0]["annotations"]] == ANSWER["citations"]
    dropped = {f"dropped:{name}" for name in (*ANSWER, *CHOICE, *MESSAGE) if name not in SILENT}
    assert warned(answer) - {"estimated:usage"} == dropped


async def test_member_that_the_client_asked_for_belongs_to_the_response():
    async with gateway(whole(WHOLE)) as site:
        answer = await site.respond(return_token_ids=True)
    contains(answer.json(), {"token_ids": [7, 8], "prompt_token_ids": [1, 2]})
    assert not {"dropped:token_ids", "dropped:prompt_token_ids"} & warned(answer)


@pytest.mark.parametrize(
    "late", [{"late": 1}, {"choices": [{"index": 0, "delta": {}, "late": 1}]}, {"choices": [{"delta": {"late": 1}}]}]
)
@pytest.mark.parametrize("usage", [False, True])
async def test_member_behind_the_finish_reason_reaches_the_client(late, usage):
    script = stream(chunk("Hi"), chunk(finish="stop"), frame(**{"choices": [], **late}))
    async with gateway(script) as site:
        answer = await site.chat(stream=True, stream_options={"include_usage": usage})
    found = accumulated(payloads(answer.text))
    assert [one.get("late") for one in found].count(1) == 1


async def test_member_in_pieces_is_joined_in_a_completion_that_is_stored():
    pieces = [{"id": "a", "data": "UklG", "n": [1]}, {"data": "Rg==", "n": [2]}]
    script = stream(*[frame(choices=[{"delta": {"audio": piece}}]) for piece in pieces], chunk(finish="stop"))
    async with gateway(script) as site:
        answer = await site.chat(stream=True, store=True)
        id = payloads(answer.text)[0]["id"]
        stored = (await site.client.get(f"/v1/chat/completions/{id}")).json()
    assert stored["choices"][0]["message"]["audio"] == {"id": "a", "data": "UklGRg==", "n": [1, 2]}


PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
LINKED = {"type": "image_url", "image_url": {"url": "https://a.example/x.png"}}


@pytest.mark.parametrize(
    "image", [PIXEL, LINKED, {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,"}}]
)
async def test_part_that_is_no_text_stays_in_its_place(image):
    parts = [{"type": "text", "text": "See: "}, image, {"type": "text", "text": "Done."}]
    script = [whole({"choices": [{"message": {"content": parts}, "finish_reason": "stop"}]})]
    script.append(stream(*[chunk([part]) for part in parts], chunk(finish="stop")))
    async with gateway(*script) as site:
        at_once, piecewise = await site.chat(), await site.chat(stream=True)
    assert at_once.json()["choices"][0]["message"]["content"] == parts
    deltas = [one["choices"][0]["delta"].get("content") for one in payloads(piecewise.text)[:-1]]
    before, after = deltas[: deltas.index([image])], deltas[deltas.index([image]) + 1 :]
    assert ("".join(before), "".join(filter(None, after))) == ("See: ", "Done.")


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("member", ["content", "images"])
async def test_image_is_an_item_of_a_response(member, streams):
    message = {"images": [PIXEL]} if member == "images" else {"content": [{"type": "text", "text": ""}, PIXEL]}
    choice = {"index": 0, "finish_reason": "stop"}
    body = {"choices": [{**choice, "delta" if streams else "message": message}]}
    async with gateway(stream(frame(**body)) if streams else whole(body)) as site:
        chat, answer = await site.chat(stream=streams), await site.respond(stream=streams)
    response = events(answer.text)[-1]["response"] if streams else answer.json()
    (item,) = [one for one in response["output"] if one["type"] == "image_generation_call"]
    assert (item["result"], item["status"]) == ("iVBORw0KGgo=", "completed")
    choices = [payload["choices"][0] for payload in (payloads(chat.text)[:-1] if streams else [chat.json()])]
    assert [PIXEL] in [(choice.get("delta") or choice.get("message") or {}).get(member) for choice in choices]


@pytest.mark.parametrize(("message", "code"), [({"images": [LINKED]}, "images"), ({"content": [LINKED]}, "content")])
async def test_image_without_its_bytes_is_reported_by_a_response(message, code):
    async with gateway(whole({"choices": [{"message": message, "finish_reason": "stop"}]})) as site:
        assert f"dropped:{code}" in warned(await site.respond())


@pytest.mark.parametrize(
    ("citations", "found"),
    [
        ([{"url": "https://a.example/", "title": "A"}], [("https://a.example/", "A")]),
        (["https://a.example/", 5, {"title": "no URL"}], [("https://a.example/", "https://a.example/")]),
        ({"0": "https://a.example/"}, []),
    ],
)
async def test_citations_are_annotations_of_a_response(citations, found):
    async with gateway(whole({"choices": [{"message": {"content": "a"}}], "citations": citations})) as site:
        (item,) = (await site.respond()).json()["output"]
    assert [(one["url"], one["title"]) for one in item["content"][0]["annotations"]] == found


async def test_citations_of_a_response_without_text_are_reported():
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    body = {"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}], "citations": ["https://a/"]}
    async with gateway(whole(body)) as site:
        assert "dropped:citations" in warned(await site.respond())


CUSTOM = {"type": "custom", "custom": {"name": "run"}}
OFFERED = {"chat": [CUSTOM], "responses": [{"type": "custom", "name": "run"}]}


@pytest.mark.parametrize("input", ["ls -la", 'echo "a\\b"\n\té', "", "😀" * 30])
async def test_custom_call_of_a_backend_is_a_custom_call_of_the_client(input):
    custom_call = {"name": "run", "input": input}
    calls = [{"id": "c1", "type": "custom", "custom": custom_call}]
    pieces = [{"index": 0, "id": "c1", "type": "custom", "custom": {"name": "run", "input": ""}}]
    pieces += [{"index": 0, "custom": {"input": one}} for one in input]
    script = stream(*[chunk(tool_calls=[piece]) for piece in pieces], chunk(finish="tool_calls"))
    async with gateway(
        whole({"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}), script
    ) as site:
        body = (await site.chat(tools=OFFERED["chat"])).json()
        frames = payloads((await site.chat(tools=OFFERED["chat"], stream=True)).text)
        answer = await site.respond(tools=OFFERED["responses"], stream=True)
    assert body["choices"][0]["message"]["tool_calls"] == calls
    deltas = [
        call for one in frames[:-1] for choice in one["choices"] for call in choice["delta"].get("tool_calls", ())
    ]
    assert "".join(one["custom"].get("input", "") for one in deltas) == input
    assert (deltas[0]["id"], deltas[0]["type"], deltas[0]["custom"]["name"]) == ("c1", "custom", "run")
    (item,) = events(answer.text)[-1]["response"]["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "run", input)


async def test_custom_calls_follow_one_another():
    first, second = (
        {"index": i, "id": f"c{i}", "type": "custom", "custom": {"name": "run", "input": "x"}} for i in (0, 1)
    )
    function = call("f", "{}", place=2, id="c2")
    calls = [{"index": 5, "type": "custom", "custom": {"input": "of no call"}}, first, *function, second]
    script = stream(chunk(tool_calls=calls), chunk("Then text"), chunk(finish="tool_calls"))
    async with gateway(script) as site:
        tools = [CUSTOM, {"type": "function", "function": {"name": "f"}}]
        frames = payloads((await site.chat(tools=tools, stream=True)).text)
    deltas = [
        call for one in frames[:-1] for choice in one["choices"] for call in choice["delta"].get("tool_calls", ())
    ]
    assert [one["id"] for one in deltas if "id" in one] == ["c0", "c2", "c1"]
    assert "".join(one.get("custom", {}).get("input", "") for one in deltas) == "xx"
    texts = [choice["delta"].get("content") for one in frames[:-1] for choice in one["choices"]]
    assert list(filter(None, texts)) == ["Then text"]
