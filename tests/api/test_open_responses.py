"""Test the compliance cases of Open Responses, whole and streamed, with a model that reasons first.

The types of https://www.openresponses.org validate requests, responses and events, and allow no other events.
The cases of compaction are in test_compaction.py.
"""

import base64
import json
from typing import NamedTuple

import openresponses_types as types
import pytest

from support.app import listening
from support.open_responses import CALL, EVENTS, WEATHER, response, script, user

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def page(text):
    """Return a PDF with one line of text."""
    content = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET"
    fonts = "<< /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R /Resources {fonts} >>",
        f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
    ]
    pdf, table = "%PDF-1.4\n", "0000000000 65535 f \n"
    for number, body in enumerate(objects, 1):
        table += f"{len(pdf):010} 00000 n \n"
        pdf += f"{number} 0 obj\n{body}\nendobj\n"
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(pdf)}\n%%EOF\n"
    return f"{pdf}xref\n0 {len(objects) + 1}\n{table}{trailer}".encode()


def assistant(text, **more):
    return {"type": "message", "role": "assistant", "content": text, **more}


def text(content):
    return {"type": "input_text", "text": content}


def data(media, content):
    return f"data:{media};base64,{content}"


class Case(NamedTuple):
    """The input of a request, the messages that the backend gets, its answer, and the tools."""

    input: list
    messages: list
    answer: str = "Three small words."
    tools: tuple = ()


IMAGE = {"type": "input_image", "image_url": data("image/png", PIXEL)}
FILE = {
    "type": "input_file",
    "filename": "report.pdf",
    "file_data": data("application/pdf", base64.b64encode(page("All is well.")).decode()),
}
CASES = {
    "basic-response": Case([user("Say three words.")], [("user", "Say three words.")]),
    "assistant-phase": Case(
        [
            user("Is it ready?"),
            assistant("I look.", phase="commentary"),
            assistant("It is.", phase="final_answer"),
            user("Thanks. And now?"),
        ],
        [("user", "Is it ready?"), ("assistant", "I look.\n\nIt is."), ("user", "Thanks. And now?")],
    ),
    "system-prompt": Case(
        [{"type": "message", "role": "system", "content": "You are a pirate."}, user("Hello.")],
        [("system", "You are a pirate."), ("user", "Hello.")],
    ),
    "tool-calling": Case([user("Weather in Oslo?")], [("user", "Weather in Oslo?")], CALL, (WEATHER,)),
    "image-input": Case(
        [user(text("What is this?"), IMAGE)],
        [("user", [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": data("image/png", PIXEL)}}])],
    ),
    "file-input": Case(
        [user(text("What does it say?"), FILE)],
        [("user", 'What does it say?\n<file name="report.pdf">All is well.</file>')],
    ),
    "multi-turn": Case(
        [user("I am Ann."), assistant("Hello Ann."), user("Who am I?")],
        [("user", "I am Ann."), ("assistant", "Hello Ann."), ("user", "Who am I?")],
    ),
}  # fmt: skip


async def ask(site, **fields):
    """Send a valid request; return the response and the types of its events."""
    body = {"model": "m", **fields}
    types.CreateResponseBody.model_validate_json(json.dumps(body), strict=True)
    answer = await site.client.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    if not fields.get("stream"):
        return response(answer.json()), []
    events = [*validated(answer.text)]
    return response(events[-1]["response"]), [event["type"] for event in events]


def validated(text):
    """Yield the valid events of a stream that ends with [DONE]."""
    *blocks, last = text.removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    for number, block in enumerate(block for block in blocks if not block.startswith(":")):
        event, data = block.split("\n")
        payload = json.loads(data.removeprefix("data: "))
        assert event == f"event: {payload['type']}" and payload["sequence_number"] == number
        EVENTS[payload["type"]].model_validate_json(json.dumps(payload), strict=True)
        yield payload


def case_fields(case, streamed):
    return {"input": case.input, "stream": streamed, **({"tools": [*case.tools]} if case.tools else {})}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", CASES)
async def test_compliance_case_passes(name, streamed):
    case = CASES[name]
    async with listening(script(case.answer, streamed), model={"format": "hermes_json"}) as site:
        answer, events = await ask(site, **case_fields(case, streamed))
        assert [(one["role"], one["content"]) for one in site.upstream_body["messages"]] == case.messages
    _, last = answer["output"]
    if case.tools:
        assert (last["type"], last["name"], json.loads(last["arguments"])) == (
            "function_call",
            "get_weather",
            {"location": "Oslo"},
        )
    else:
        assert [part["text"] for part in last["content"]] == ["Three small words."]
    if streamed:
        assert (events[0], events[-1]) == ("response.created", "response.completed")
        piece = "function_call_arguments" if case.tools else "output_text"
        assert {f"response.{piece}.delta", f"response.{piece}.done", "response.output_item.done"} < {*events}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("stored", [False, True])
async def test_tool_call_and_its_result_are_accepted_back_without_tools(stored, streamed):
    scripts = script(CALL, streamed), script("It is cold.", streamed)
    async with listening(*scripts, model={"format": "hermes_json"}) as site:
        named = {"type": "function", "name": "get_weather"}
        question = user("Weather in Oslo?")
        request = {"input": [question], "tools": [WEATHER], "tool_choice": named, "stream": streamed}
        first, _ = await ask(site, **request)
        (call,) = [item for item in first["output"] if item["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": '{"degrees": -3}'}
        before = {"previous_response_id": first["id"]} if stored else {}
        past = [] if stored else [question, *first["output"]]
        second, _ = await ask(site, **before, input=[*past, result], stream=streamed)
        assert second["output"][-1]["content"][0]["text"] == "It is cold."
        assert second["previous_response_id"] == before.get("previous_response_id")
        request, past, answer = site.upstream_body["messages"]
        assert (request["content"], "tools" in site.upstream_body) == ("Weather in Oslo?", False)
        assert (past["reasoning_content"], answer["content"]) == ("Let me see.", '{"degrees": -3}')
        assert past["tool_calls"][0]["id"] == answer["tool_call_id"] == call["call_id"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_previous_response_is_continued(streamed):
    scripts = script("Hello Ann.", streamed), script("You are Ann.", streamed)
    async with listening(*scripts, model={"format": "hermes_json"}) as site:
        first, _ = await ask(site, input=[user("I am Ann.")], stream=streamed)
        second, _ = await ask(site, input=[user("Who am I?")], previous_response_id=first["id"], stream=streamed)
        messages = [(one["role"], one["content"]) for one in site.upstream_body["messages"]]
    assert messages == [("user", "I am Ann."), ("assistant", "Hello Ann."), ("user", "Who am I?")]
    assert (second["previous_response_id"], second["store"]) == (first["id"], True)
    assert second["output"][-1]["content"][0]["text"] == "You are Ann."


@pytest.mark.parametrize("carrier", ["summary", "text"])
async def test_reasoning_carrier_by_default_keeps_to_the_open_responses_events(carrier):
    """OpenAI's events of raw reasoning are not among those of Open Responses."""
    async with listening(script("Hi.", True), model={"format": "hermes_json", "reasoning": {"as": carrier}}) as site:
        answer = await site.client.post("/v1/responses", json={"model": "m", "input": "Hi", "stream": True})
    assert "event: response.completed" in answer.text
    kinds = {line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")}
    assert kinds - EVENTS.keys() == (
        {"response.reasoning_text.delta", "response.reasoning_text.done"} if carrier == "text" else set()
    )
