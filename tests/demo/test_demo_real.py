"""Test the openai SDK with the gateway and a real llama.cpp.

The same server runs twice: with its own parsing (`native`), and without, so that the gateway parses the text
(`hermes_json`, `auto`).  Both give the same responses.
"""

import io
import json
import re

import pytest
from anthropic import Anthropic
from openai import AsyncOpenAI, BadRequestError, OpenAI

from gateway import demo
from gateway.config import parse
from gateway.formats import format_names
from support.threaded_gateway import served
from support.worked_examples import TURNS, items

RAW = ("--skip-chat-parsing", "--reasoning-format", "none")
MODELS = {"native": "parsed", "hermes": "raw", "found": "raw", "net": "parsed"}
CONFIG = """
backends:
  parsed: {{kind: llamacpp, url: "{parsed}"}}
  raw: {{kind: llamacpp, url: "{raw}"}}
models:
  native: {{backends: [parsed], upstream_model: smollm2, format: native}}
  hermes: {{backends: [raw], upstream_model: smollm2, format: hermes_json}}
  found: {{backends: [raw], upstream_model: smollm2}}
  net: {{backends: [parsed], upstream_model: smollm2}}
"""


@pytest.fixture(scope="module")
def url(llama):
    """Yield the URL of a gateway in front of both servers."""
    with (
        demo.start_demo("--threads", "1", *RAW, out=io.StringIO()) as raw,
        served(parse(CONFIG.format(parsed=llama, raw=raw), "real.yaml", {}, format_names())) as url,
    ):
        yield url


@pytest.fixture
def client(url):
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def arguments(turn, model, **more):
    """Return the arguments of `create`."""
    return turn.body(**more) | {"model": model}


def summary_of(completion):
    """Return content, thought, tool calls and finish reason of a completion."""
    (choice,) = completion.choices
    message = choice.message
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]
    return (
        message.content or "",
        (getattr(message, "reasoning_content", None) or "").strip(),
        calls,
        choice.finish_reason,
    )


def wanted(turn):
    return turn.content, turn.thought, turn.calls, "tool_calls" if turn.calls else "stop"


def as_message(one):
    """Return a message of a chat completion as Anthropic's API has it."""
    if one["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": one["tool_call_id"], "content": one["content"]}
        return {"role": "user", "content": [result]}
    text = [{"type": "text", "text": one["content"]}] if one.get("content") else []
    calls = [(call["id"], call["function"]) for call in one.get("tool_calls", ())]
    uses = [
        {"type": "tool_use", "id": id, "name": function["name"], "input": json.loads(function["arguments"])}
        for id, function in calls
    ]
    return {"role": one["role"], "content": text + uses}


def assert_message_is(url, turn):
    """Check the same turn by Anthropic's SDK, whole and streamed."""
    body = turn.body()
    tools = [{"name": one["function"]["name"], "input_schema": one["function"]["parameters"]} for one in body["tools"]]
    request = {"model": "m", "max_tokens": 400, "messages": [*map(as_message, body["messages"])], "tools": tools}
    with Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        whole = client.messages.create(**request, extra_body={"temperature": 0})
        with client.messages.stream(**request, extra_body={"temperature": 0}) as stream:
            streamed = stream.get_final_message()
    for message in (whole, streamed):
        assert [(block.name, block.input) for block in message.content if block.type == "tool_use"] == turn.calls
        assert message.stop_reason == "tool_use" and message.usage.output_tokens > 5


@pytest.mark.smoke
def test_demo_model_calls_a_tool_in_all_apis(llama):
    config = f"backends: {{up: {{kind: llamacpp, url: '{llama}'}}}}\nmodels: {{m: {{upstream_model: {demo.MODEL}}}}}"
    turn = next(turn for turn in TURNS.values() if turn.calls)
    with (
        served(parse(config, "real.yaml", {}, format_names())) as url,
        OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        assert summary_of(client.chat.completions.create(**arguments(turn, "m"))) == wanted(turn)
        with client.chat.completions.stream(**arguments(turn, "m")) as stream:
            assert summary_of(stream.get_final_completion()) == wanted(turn)
        response = client.responses.create(model="m", input="Say hello.", max_output_tokens=16)
        assert_message_is(url, turn)
    assert response.output_text and 0 < response.usage.output_tokens <= 16


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", TURNS)
def test_chat_completion_is_the_same_for_each_format(client, name, model):
    turn = TURNS[name]
    whole = client.chat.completions.create(**arguments(turn, model))
    assert summary_of(whole) == wanted(turn) and whole.model == model
    assert whole.usage.prompt_tokens > 50 and whole.usage.completion_tokens > 5

    with client.chat.completions.stream(**arguments(turn, model), stream_options={"include_usage": True}) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_completion()
    assert summary_of(streamed) == wanted(turn)
    assert streamed.usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.parametrize("model", ["native", "hermes"])
async def test_chat_completion_is_the_same_for_the_async_client(url, model):
    turn = TURNS["think_then_calls"]
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        assert summary_of(await client.chat.completions.create(**arguments(turn, model))) == wanted(turn)
        stream = await client.chat.completions.create(**arguments(turn, model, stream=True))
        chunks = [chunk async for chunk in stream]
    thought = "".join(getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks)
    assert thought.strip() == turn.thought and chunks[-1].choices[0].finish_reason == "tool_calls"
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["single", "think_then_call"])
def test_tool_call_cut_by_the_limit_is_the_same_for_each_format(client, name, stream):
    """No limit makes markup content or changes the tool calls."""
    turn = TURNS[name]
    for limit in range(3, 36, 8):
        answers = {}
        for model in ("native", "hermes"):
            body = arguments(turn, model) | {"max_tokens": limit}
            if stream:
                chunks = client.chat.completions.create(**body, stream=True)
                answers[model] = folded(chunks)
            else:
                (choice,) = client.chat.completions.create(**body).choices
                calls = [(c.function.name, c.function.arguments) for c in choice.message.tool_calls or ()]
                thought = getattr(choice.message, "reasoning_content", None) or ""
                answers[model] = (choice.message.content or "", thought, calls, choice.finish_reason)
        (content, thought, calls, finish), (text, thinking, found, end) = answers["native"], answers["hermes"]
        assert finish == end == ("length" if limit < full_length(client, name) else "tool_calls")
        assert text.strip() == LEAK.sub("", content).strip()
        assert thought.strip() == thinking.strip()
        assert [name for name, _ in calls] == [name for name, _ in found]
        for (_, theirs), (_, ours) in zip(calls, found, strict=True):
            assert ours == "{}" or json.dumps({"city": "Paris", "unit": "celsius"}).startswith(ours.rstrip())
            assert theirs[:1] == ours[:1] == "{"


LEAK = re.compile(r"<(/?tool|think).*$", re.DOTALL)  # of llama.cpp, where the limit falls into a tag or a call
LENGTHS = {}


def full_length(client, name):
    if name not in LENGTHS:
        whole = client.chat.completions.create(**arguments(TURNS[name], "native"))
        LENGTHS[name] = whole.usage.completion_tokens
    return LENGTHS[name]


def folded(chunks):
    content, thought, calls, finish = "", "", [], None
    for chunk in chunks:
        (choice,) = chunk.choices
        content += choice.delta.content or ""
        thought += getattr(choice.delta, "reasoning_content", None) or ""
        for call in choice.delta.tool_calls or ():
            if call.id:
                calls.append((call.function.name, ""))
            name, arguments = calls[call.index]
            calls[call.index] = (name, arguments + (call.function.arguments or ""))
        finish = choice.finish_reason or finish
    return content, thought, calls, finish


@pytest.mark.parametrize("model", ["native", "hermes"])
def test_choice_count_and_logprobs_reach_the_model(client, model):
    question = [{"role": "user", "content": "What is the capital of France?"}]
    common = {"model": model, "messages": question, "temperature": 0, "max_completion_tokens": 8}
    two = client.chat.completions.create(**common, n=2)
    assert [choice.index for choice in two.choices] == [0, 1] and two.choices[0].message.content
    one = client.chat.completions.create(**common, logprobs=True, top_logprobs=2)
    tokens = one.choices[0].logprobs.content
    assert "".join(token.token for token in tokens).startswith(one.choices[0].message.content[:5])
    assert all(len(token.top_logprobs) == 2 and token.logprob <= 0 for token in tokens)
    for fields in ({}, {"top_logprobs": 0}):
        alone = client.chat.completions.create(**common, logprobs=True, **fields).choices[0].logprobs.content
        assert [(token.token, token.top_logprobs) for token in alone] == [(token.token, []) for token in tokens]


def test_json_schema_reaches_the_model(client):
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 0}},
        "required": ["n"],
        "additionalProperties": False,
    }
    response = client.chat.completions.create(
        model="native",
        messages=[{"role": "user", "content": "Say a number."}],
        temperature=0,
        max_tokens=30,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    )
    assert 0 <= json.loads(response.choices[0].message.content)["n"] <= 9


def test_tool_call_is_absent_with_tool_choice_none(client):
    turn = TURNS["single"]
    response = client.chat.completions.create(**arguments(turn, "hermes"), tool_choice="none")
    assert not response.choices[0].message.tool_calls


def test_error_for_a_long_prompt_is_that_of_openai(client):
    with pytest.raises(BadRequestError) as error:
        client.chat.completions.create(model="native", messages=[{"role": "user", "content": "word " * 40000}])
    assert error.value.code == "context_length_exceeded"


def question(turn, model, **more):
    """Return the same conversation as arguments of `responses.create`, with all thoughts."""
    tools = [{"type": "function", "strict": False, **tool["function"]} for tool in turn.tools]
    common = {"model": model, "input": [*items(turn.messages)], "temperature": 0, "max_output_tokens": 120}
    return common | {"store": False, "reasoning": {"context": "all_turns"}, "tools": tools} | more


def summary_of_response(response):
    """Return content, thought, tool calls and an equivalent of the finish reason."""
    calls = [(item.name, json.loads(item.arguments)) for item in response.output if item.type == "function_call"]
    thoughts = [part.text for item in response.output if item.type == "reasoning" for part in item.summary]
    assert response.status == "completed"
    return response.output_text, "".join(thoughts).strip(), calls, "tool_calls" if calls else "stop"


@pytest.mark.parametrize("model", ["native", "hermes"])
@pytest.mark.parametrize("name", ["think", "think_then_calls"])
def test_response_equals_the_chat_completion(client, name, model):
    turn = TURNS[name]
    whole = client.responses.create(**question(turn, model))
    with client.responses.stream(**question(turn, model)) as stream:
        streamed = stream.get_final_response()
    assert summary_of_response(whole) == summary_of_response(streamed) == wanted(turn)
    completion = client.chat.completions.create(**arguments(turn, model))
    for response in (whole, streamed):
        assert response.usage.input_tokens == completion.usage.prompt_tokens
        assert response.usage.output_tokens == completion.usage.completion_tokens


def test_response_continues_with_its_own_items(client):
    """The thought before the tool call reaches the model unchanged, readable or sealed."""
    turn = TURNS["think_then_call"]
    request = question(
        turn, "hermes", extra_body={"cache_prompt": False}
    )  # with a cached prompt it is less sure of itself
    thought, call = client.responses.create(**request).output
    read = {"type": "reasoning", "summary": [part.model_dump() for part in thought.summary]}
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": thought.encrypted_content}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": '{"temperature": 18}'}
    counts = set()
    for replayed in (read, sealed):
        after = client.responses.create(**request | {"input": [*request["input"], replayed, call, result]})
        assert after.output_text == TURNS["follow_up"].content
        counts.add(after.usage.input_tokens)
    assert len(counts) == 1


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("state", ["chain", "conversation"])
def test_response_continues_from_stored_state(client, state, streamed):
    """The client sends neither text nor thoughts again."""
    turn, then = TURNS["think"], {"role": "user", "content": "What is 1 + 1?"}
    request = question(turn, "hermes", store=True)
    kept = {"conversation": client.conversations.create().id} if state == "conversation" else {}
    first = respond(client, streamed, request | kept)
    assert summary_of_response(first) == wanted(turn)
    before = kept or {"previous_response_id": first.id}
    second = respond(client, streamed, request | before | {"input": [then]})
    assert summary_of_response(second)[:2] == ("1 + 1 = 2.", "The user wants 1 + 1. That is 2.")
    conversation = [
        *turn.messages,
        {"role": "assistant", "content": turn.content, "reasoning_content": turn.thought},
        then,
    ]
    counted = client.responses.input_tokens.count(
        model="hermes", input=[*items(conversation)], reasoning={"context": "all_turns"}
    )
    assert second.usage.input_tokens == counted.input_tokens


def respond(client, streamed, request):
    if not streamed:
        return client.responses.create(**request)
    with client.responses.stream(**request) as stream:
        return stream.get_final_response()


def test_models_are_listed(client):
    assert {model.id for model in client.models.list()} == set(MODELS)
    assert client.models.retrieve("native").id == "native"


@pytest.mark.parametrize("model", ["native", "found"])
def test_token_count_equals_that_of_the_response(client, model):
    tool = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
    for more in ({}, {"instructions": "Be brief."}, {"tools": [tool]}):
        request = {"model": model, "input": "Where is Oslo?", **more}
        counted = client.responses.input_tokens.count(**request).input_tokens
        answered = client.responses.create(**request, max_output_tokens=16, temperature=0)
        assert counted == answered.usage.input_tokens


def test_conversation_is_compacted_and_continues(client):
    talk = [{"role": "user", "content": "My name is Ann."}, {"role": "assistant", "content": "Hello Ann."}]
    brief = {"temperature": 0, "stop": ["."]}  # a small model says no end of things
    compacted = client.responses.compact(model="native", input=talk, extra_body=brief)
    *users, item = compacted.output
    assert [one.content[0].text for one in users] == ["My name is Ann."] and item.type == "compaction"
    go_on = {"role": "user", "content": "Thanks."}
    summary = item.model_dump(include={"type", "encrypted_content"})
    request = {"model": "native", "input": [summary, go_on], "max_output_tokens": 16, "extra_body": brief}
    managed = [{"type": "compaction", "compact_threshold": 1}]
    answer = client.responses.create(**request, context_management=managed)
    assert [item.type for item in answer.output] == ["compaction", "message"]
