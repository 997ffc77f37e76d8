"""Test forced tool calls and response formats for servers that cannot force them: the requests and the responses."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.backends import KINDS
from gateway.request import Request, Tool, ToolName
from gateway.transforms import output_enforcement
from gateway.transforms.output_validation import EnforcementTerms, output_validation
from gateway.warnings import Warnings
from support.app import gateway, problem
from support.ollama import Turn, content_line
from support.ollama_gateway import site
from support.responses_events import checked
from support.sse import payloads, text_of
from support.upstream import CLOSE, call, chunk, completion_body, frame, head, stream, whole

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TOOLS = [WEATHER, CLOCK]
NAMED = {"type": "function", "function": {"name": "weather"}}
FORM = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
JSON = '{"name": "weather", "arguments": {"city": "Oslo"}}'
CALLED = stream(chunk(tool_calls=call("weather", '{"city": "Oslo"}', id="c1")), chunk(finish="tool_calls"))
PROSE = stream(
    chunk("I cannot"),
    chunk(" see."),
    chunk(finish="stop"),
    frame(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 2}),
)


def test_tool_choice_is_enforced_by_the_means_of_the_kind():
    def means(kind, *, mute=False, raw=False):
        one = KINDS[kind].without_parsers() if raw else KINDS[kind]
        return [output_enforcement.enforcement_means(one, mute=mute, again=again) for again in (False, True)]

    assert means("openai") == means("vllm") == means("sglang") == means("lmstudio") == ["own", "schema"]
    assert means("llamacpp") == ["own", "schema"] and means("llamacpp", raw=True) == ["schema", "schema"]
    assert means("vllm", mute=True) == means("ollama") == ["schema", "schema"]
    assert means("transformers") == means("transformers", mute=True) == ["words", "words"]


CHOICES = st.sampled_from([None, "auto", "none", "required", ToolName("f")])
RESTS = st.sampled_from(
    [{}, {"temperature": 1}, {"response_format": {"type": "text"}}, {"response_format": FORM}, {"format": "json"}]
)


@given(st.sampled_from([(), (Tool("f", {"name": "f"}),)]), CHOICES, RESTS, st.sampled_from(list(KINDS)))
def test_enforcement_changes_nothing_for_unbound_requests(tools, choice, rest, kind):
    messages = ({"role": "user", "content": "Hi"},)
    request, ledger = Request(model="m", messages=messages, tools=tools, tool_choice=choice, rest=rest), Warnings()
    done = [
        output_enforcement.enforce_output(request, KINDS[kind], how, ledger) is not request
        for how in ("own", "schema", "words")
    ]
    promise = output_validation(request, EnforcementTerms, ledger)
    assert output_enforcement.is_enforced(request) or not (any(done) or promise or ledger.entries())


def enforced_request(*tools, choice="required", kind="ollama", how="schema", **fields):
    ledger = Warnings()
    request = Request(model="m", messages=(), tools=tools, tool_choice=choice, **fields)
    return output_enforcement.enforce_output(request, KINDS[kind], how, ledger), ledger.entries()


def schema(*tools, **fields):
    return enforced_request(*tools, **fields)[0].rest["response_format"]["json_schema"]["schema"]


F, G = Tool("f", {"name": "f", "parameters": CITY}), Tool("g", {"name": "g"})


def call_schema(name, arguments):
    properties = {"name": {"const": name}, "arguments": arguments}
    return {
        "type": "object",
        "properties": properties,
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def test_tool_call_schema_has_the_names_and_the_parameters():
    assert schema(F) == call_schema("f", CITY)
    assert schema(F, G) == {"anyOf": [call_schema("f", CITY), call_schema("g", {"type": "object"})]}
    assert schema(F, G, choice=ToolName("g")) == call_schema("g", {"type": "object"})
    several = {"rest": {"parallel_tool_calls": True}}
    assert schema(F, **several) == {"type": "array", "items": call_schema("f", CITY), "minItems": 1}
    assert schema(F, choice=ToolName("f"), **several) == call_schema("f", CITY)


def test_tool_call_schema_moves_definitions_to_its_root():
    node = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}}
    tree = {
        "type": "object",
        "properties": {"top": {"$ref": "#/$defs/Node"}, "odd": {"$ref": "#/other"}},
        "$defs": {"Node": node},
    }
    old = {"type": "object", "properties": {"a": {"$ref": "#/definitions/A"}}, "definitions": {"A": {"type": "string"}}}
    made = schema(Tool("t", {"name": "t", "parameters": tree}), Tool("o", {"name": "o", "parameters": old}))
    first, second = (option["properties"]["arguments"] for option in made["anyOf"])
    assert first["properties"] == {"top": {"$ref": "#/$defs/tool0_defs_Node"}, "odd": {"$ref": "#/other"}}
    assert second["properties"] == {"a": {"$ref": "#/$defs/tool1_definitions_A"}} and not {"$defs", "definitions"} & {
        *first,
        *second,
    }
    there = {"$ref": "#/$defs/tool0_defs_Node"}
    assert made["$defs"]["tool0_defs_Node"]["properties"]["next"] == {"anyOf": [there, {"type": "null"}]}
    assert made["$defs"]["tool1_definitions_A"] == {"type": "string"}


def test_tool_call_schema_takes_deep_and_invalid_definitions():
    deep = {"type": "string"}
    for _ in range(400):
        deep = {"type": "object", "properties": {"a": deep}}
    made = schema(Tool("t", {"name": "t", "parameters": {"$ref": "#/$defs/x", "$defs": {"x": deep}, "definitions": 7}}))
    assert made["$defs"] == {"tool0_defs_x": deep}
    assert made["properties"]["arguments"] == {"$ref": "#/$defs/tool0_defs_x", "definitions": 7}


def test_tool_call_schema_replaces_a_format_of_the_client():
    for how in ("schema", "words"):
        request, entries = enforced_request(F, how=how, rest={"guided_json": CITY, "seed": 1})
        assert "guided_json" not in request.rest and request.rest["seed"] == 1
        assert entries == ["emulated:tool_choice", "dropped:response_format"]


def chunks(answer):
    return [payload for payload in payloads(answer.text) if payload != "[DONE]"]


def choices(answer):
    return [choice for payload in chunks(answer) for choice in payload["choices"]]


@pytest.mark.parametrize("streamed", [False, True])
async def test_tool_call_schema_is_sent_to_ollama(streamed):
    pieces = Turn([content_line(JSON[i : i + 9]) for i in range(0, len(JSON), 9)])
    async with site(pieces) as one_site:
        answer = await one_site.chat(tools=TOOLS, tool_choice=NAMED, stream=streamed)
        (upstream_body,) = one_site.server.bodies
    assert upstream_body["format"] == call_schema("weather", CITY) and upstream_body["tools"] == [WEATHER]
    assert answer.headers["x-gateway-warnings"] == "emulated:tool_choice"
    if streamed:
        parts = [call["function"] for choice in choices(answer) for call in choice["delta"].get("tool_calls", ())]
        assert parts[0]["name"] == "weather" and len(parts) > 2
        assert "".join(part.get("arguments", "") for part in parts) == '{"city": "Oslo"}'
    else:
        (choice,) = answer.json()["choices"]
        assert choice["finish_reason"] == "tool_calls" and not choice["message"]["content"]
        assert choice["message"]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}


@pytest.mark.parametrize("streamed", [False, True])
async def test_tool_call_that_is_missing_is_retried_with_a_schema(streamed):
    """The client gets only the second response; usage counts both."""
    again = stream(
        *map(chunk, (JSON[:20], JSON[20:])),
        chunk(finish="stop"),
        frame(choices=[], usage={"prompt_tokens": 20, "completion_tokens": 9}),
    )
    async with gateway(PROSE, again) as site:
        answer = await site.chat(
            tools=TOOLS,
            tool_choice="required",
            stream=streamed,
            stream_options={"include_usage": True} if streamed else None,
        )
        first, second = (post.json for post in site.upstream.posts)
    assert first["tool_choice"] == "required" and "response_format" not in first
    assert "tool_choice" not in second and second["response_format"]["type"] == "json_schema"
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "user"]
    assert second["messages"][2]["content"] == "I cannot see."
    assert "I cannot" not in answer.text
    assert answer.headers["x-gateway-warnings"] == "emulated:tool_choice"
    usage = chunks(answer)[-1]["usage"] if streamed else answer.json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (27, 11)
    assert '\\"city\\"' in answer.text and answer.text.count("tool_calls") >= 2


async def test_tool_call_that_is_missing_is_retried_in_responses():
    async with gateway(PROSE, CALLED) as site:
        tools = [{"type": "function", **WEATHER["function"]}]
        answer = await site.respond(stream=True, tools=tools, tool_choice="required")
        response = checked(answer.content)
    assert [item["type"] for item in response["output"]] == ["function_call"]
    assert len(site.upstream.posts) == 2


@pytest.mark.parametrize("name", ["clock", "c" * 60])
async def test_retry_calls_a_tool_in_a_namespace_by_the_name_that_the_backend_has(name):
    tools = [{"type": "namespace", "name": "time", "tools": [{"type": "function", "name": name}]}]
    choice = {"type": "function", "name": name, "namespace": "time"}
    async with gateway(PROSE) as site:
        await site.respond(tools=[*tools, {"type": "function", "name": name}], tool_choice=choice, stream=True)
        demand, *_, retry = (message["content"] for message in site.upstream_body["messages"])
        flat = site.upstream_body["tools"][0]["function"]["name"]
    assert flat.startswith("time__c") and f"the tool '{flat}'," in demand and f"the tool '{flat}'," in retry


@pytest.mark.parametrize("streamed", [False, True])
async def test_call_of_a_forced_tool_in_a_namespace_is_not_retried(streamed):
    tools = [{"type": "namespace", "name": "time", "tools": [{"type": "function", "name": "clock"}]}]
    choice = {"type": "function", "name": "clock", "namespace": "time"}
    async with gateway(
        stream(chunk(tool_calls=call("time__clock", "{}", id="c1")), chunk(finish="tool_calls"))
    ) as site:
        answer = await site.respond(tools=tools, tool_choice=choice, stream=streamed)
        assert len(site.upstream.posts) == 1 and "unenforced" not in answer.headers.get("x-gateway-warnings", "")


async def test_tool_call_is_not_retried_after_streamed_output():
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 1}}
    thought = stream(chunk(reasoning_content="Hm"), chunk("No."), chunk(finish="stop"), frame(choices=[], usage=usage))
    async with gateway(
        [thought[0], b"".join(thought[1:-1]), thought[-1]]
    ) as site:  # in one packet, so that the warning is in the headers
        answer = await site.chat(tools=TOOLS, tool_choice="required", stream=True)
        assert len(site.upstream.posts) == 1
    assert text_of(answer.text) == "No."
    assert answer.headers["x-gateway-warnings"] == "unenforced:tool_choice"


async def test_tool_call_is_retried_only_once():
    async with gateway(PROSE) as site:
        answer = await site.chat(tools=TOOLS, tool_choice="required")
        assert len(site.upstream.posts) == 2
    assert answer.json()["choices"][0]["message"]["content"] == "I cannot see."
    assert answer.headers["x-gateway-warnings"] == "emulated:tool_choice, unenforced:tool_choice"


async def test_tool_call_is_not_retried_if_the_operator_only_warns():
    async with gateway(PROSE, model={"enforce": {"tool_choice": "warn"}}) as site:
        answer = await site.chat(tools=TOOLS, tool_choice="required")
        assert len(site.upstream.posts) == 1
    assert answer.headers["x-gateway-warnings"] == "unenforced:tool_choice"


@pytest.mark.parametrize("streamed", [False, True])
async def test_tool_call_or_format_that_is_missing_is_an_error_with_refuse(streamed):
    async with gateway(PROSE, model={"enforce": {"tool_choice": "refuse", "response_format": "refuse"}}) as site:
        answer = await site.chat(tools=TOOLS, tool_choice="required", stream=streamed)
        assert problem(answer) == (400, "invalid_request_error", "unsupported_value", "tool_choice")
        answer = await site.chat(response_format=FORM, stream=streamed)
        assert problem(answer) == (400, "invalid_request_error", "unsupported_value", "response_format")
        assert len(site.upstream.posts) == 4


@pytest.mark.parametrize("streamed", [False, True])
async def test_strict_mode_refuses_other_output_if_only_words_ask_for_it(streamed):
    strict = {"headers": {"x-gateway-strict": "1"}, "stream": streamed}
    async with gateway(PROSE, backend={"kind": "transformers"}) as site:
        answer = await site.chat(tools=TOOLS, tool_choice="required", **strict)
        assert problem(answer) == (400, "invalid_request_error", "unsupported_value", "tool_choice")
        answer = await site.chat(response_format=FORM, **strict)
        assert problem(answer) == (400, "invalid_request_error", "unsupported_value", "response_format")
    async with gateway(
        stream(chunk('{"city": "Oslo"}'), chunk(finish="stop")), backend={"kind": "transformers"}
    ) as site:
        assert '\\"city\\"' in (await site.chat(response_format=FORM, **strict)).text


async def test_retry_that_fails_leaves_the_first_response():
    refused = whole({"error": {"message": "No such thing.", "type": "invalid_request_error", "code": 400}}, 400)
    for second in (refused, [head(), chunk("On"), CLOSE]):
        async with gateway(PROSE, second) as site:
            answer = await site.chat(tools=TOOLS, tool_choice="required", stream=True)
        assert text_of(answer.text) == "I cannot see." and answer.text.endswith("[DONE]\n\n")
        assert "unenforced:tool_choice" in answer.headers["x-gateway-warnings"]


async def test_response_format_is_retried_if_the_operator_wants_it():
    right = whole(completion_body('{"city": "Oslo"}'))
    async with gateway(
        whole(completion_body('{"town": "Oslo"}')), right, model={"enforce": {"response_format": "retry"}}
    ) as site:
        answer = await site.chat(response_format=FORM)
        *_, last = site.upstream_body["messages"]
    assert answer.json()["choices"][0]["message"]["content"] == '{"city": "Oslo"}'
    assert last["role"] == "user" and '"city" is a required property' in last["content"]
    assert "x-gateway-warnings" not in answer.headers


async def test_response_format_is_asked_for_in_words_without_schemas():
    async with gateway(whole(completion_body('{"city": "Oslo"}')), backend={"kind": "transformers"}) as site:
        answer = await site.chat(response_format=FORM)
        (word, _) = site.upstream_body["messages"]
        assert (
            answer.headers["x-gateway-warnings"] == "emulated:response_format"
            and "response_format" not in site.upstream_body
        )
        assert word["role"] == "system" and json.dumps(CITY, separators=(",", ":")) in word["content"]
        answer = await site.chat(response_format={"type": "json_object"}, tools=TOOLS)
        assert site.upstream_body["messages"][0]["content"].startswith(
            "Unless you call a tool, answer with nothing but JSON"
        )


async def test_response_format_is_a_grammar_for_llamacpp_without_a_parser():
    raw = {"backend": {"kind": "llamacpp"}, "model": {"format": "hermes_json"}}
    async with gateway(whole(completion_body('{"city": "Oslo"}')), **raw) as site:
        assert (await site.chat(response_format=FORM)).headers["x-gateway-warnings"] == "translated:response_format"
        assert "city" in site.upstream_body["grammar"] and "response_format" not in site.upstream_body
        await site.chat(response_format={"type": "json_object"})
        assert "root ::= space object\n" in site.upstream_body["grammar"]
        answer = await site.chat(response_format=FORM, tools=TOOLS)
        assert "grammar" not in site.upstream_body and "dropped:response_format" in answer.headers["x-gateway-warnings"]
        await site.chat(response_format={"type": "text"})
        assert "grammar" not in site.upstream_body
    async with gateway(whole(completion_body(JSON)), **raw) as site:
        answer = await site.chat(tools=TOOLS, tool_choice=NAMED)
        assert site.upstream_body["tool_choice"] == "none" and site.upstream_body["tools"] == [WEATHER]
        assert "weather" in site.upstream_body["grammar"]
    assert answer.headers["x-gateway-warnings"] == "emulated:tool_choice"
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "weather"


async def test_logprobs_with_tools_are_asked_for_without_streaming():
    chances = {"content": [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}]}
    body = completion_body()
    body["choices"][0]["logprobs"] = chances
    async with gateway(whole(body), backend={"kind": "llamacpp"}) as site:
        answer = await site.chat(tools=TOOLS, logprobs=True, stream=True)
        assert site.upstream_body["stream"] is False and site.upstream_body["logprobs"] is True
        assert answer.headers["x-gateway-warnings"].startswith("emulated:logprobs")
        assert text_of(answer.text) == "Hi"
        logprobs = [choice["logprobs"]["content"] for choice in choices(answer) if choice.get("logprobs")]
        assert [one["token"] for content in logprobs for one in content] == ["Hi"]
        await site.chat(tools=TOOLS, tool_choice="none", logprobs=True, stream=True)
        assert site.upstream_body["stream"] is True


@pytest.mark.parametrize("cut", range(1, 9))
async def test_stop_sequence_ends_the_response_under_any_cut(cut):
    """Later text, tool calls and finish reasons are dropped."""
    text = "One.\n##Two.##"
    frames = [chunk(text[i : i + cut]) for i in range(0, len(text), cut)]
    after = [chunk(tool_calls=call("weather", "{}", id="c1")), chunk(finish="length")]
    async with gateway(stream(*frames, *after), backend={"kind": "transformers"}) as site:
        answer = await site.chat(stop=["##"], stream=True, tools=TOOLS)
    assert text_of(answer.text) == "One.\n"
    reasons = [choice["finish_reason"] for choice in choices(answer) if choice["finish_reason"]]
    assert reasons == ["stop"] and "weather" not in answer.text


@pytest.mark.parametrize("streamed", [False, True])
async def test_choices_that_are_missing_are_a_warning(streamed):
    async with gateway(PROSE) as site:
        answer, one_alone = [await site.chat(n=n, stream=streamed) for n in (2, 1)]
    assert "unenforced:n" in (answer.text if streamed else answer.headers["x-gateway-warnings"])
    assert "unenforced:n" not in one_alone.text and "x-gateway-warnings" not in one_alone.headers
