"""Test the choice of a model's format: by the operator, by name, by chat template, or by the text."""

import asyncio
import json
from fnmatch import fnmatchcase

import httpx
import pytest

from gateway.events import Finish, TextDelta
from gateway.formats import FORMATS, canonical_name
from gateway.formats.selection import choice_by_name, choice_by_template, find_profile, load_profiles
from gateway.pipeline.normalizer import Normalizer
from gateway.server.upstream.model_metadata import MetadataCache
from support import ollama
from support.app import gateway
from support.pipeline import merge, parser_settings
from support.sse import payloads
from support.upstream import END, HANG, HELLO, chunk, completion_body, frame, head, stream, whole
from support.wait import until

TOOLS = [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}]
CALL = "<tool_call>\n<function=clock>\n</function>\n</tool_call>"


def parts_of(answer):
    """Return reasoning, content and tool calls of a response, streamed or whole."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        message = answer.json()["choices"][0]["message"]
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        return message.get("reasoning_content", ""), message["content"] or "", calls
    reasoning, content, calls = "", "", []
    for one in payloads(answer.text):
        for choice in one["choices"] if one != "[DONE]" else ():
            delta = choice["delta"]
            reasoning += delta.get("reasoning_content") or ""
            content += delta.get("content") or ""
            for call in delta.get("tool_calls") or ():
                if call.get("id"):
                    calls.append({"name": call["function"]["name"], "arguments": ""})
                calls[-1]["arguments"] += call["function"].get("arguments") or ""
    return reasoning, content, calls


def stream_of(text):
    return stream(*(chunk(piece) for piece in text), chunk(finish="stop"))


def format_header(answer):
    return answer.headers["x-gateway-format"]


DEBUG = {"x-gateway-debug": "1"}


# By name


@pytest.mark.parametrize(
    ("name", "format", "thought"),
    [
        ("Qwen/Qwen3-8B", "hermes_json", False),
        ("qwen3-coder:30b", "qwen_xml", False),
        ("Qwen3-30B-A3B-Thinking-2507", "hermes_json", True),
        ("Qwen/Qwen3.5-35B-A3B", "qwen_xml", True),
        ("openai/gpt-oss-20b", "harmony", False),
        ("llama3.2:3b", "llama3_json", False),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4_pythonic", False),
        ("/models/DeepSeek_V3.1-Q4_K_M.gguf", "deepseek_v31", False),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek_v3", True),
        ("zai-org/GLM-4.7-Flash", "glm47_xml", True),
        ("hermes-3-llama-3.1-8b", "hermes_json", False),
        ("Mistral-Small-3.2-24B-Instruct-2506", "mistral", False),
        ("IQuestLab/IQuest-Q1-40B", "glm47_xml", False),
        ("zai-org/GLM-5.3-Flash", "glm47_xml", True),
        ("LGAI-EXAONE/K-EXAONE-236B-A23B", "hermes_json", True),
        ("upstage/Solar-Open-100B", "solar_open", False),
        ("upstage/Solar-Open2-250B", "solar_open2", False),
        ("FreedomIntelligence/openPangu-Embedded-7B-V1.1", "openpangu", False),
        ("deepreinforce-ai/Ornith-1.0-9B", "qwen_xml", True),
        ("stepfun-ai/StepFun3.5-Flash", "step3p5_xml", True),
        ("CohereLabs/Cohere2MoE", "cohere4", False),
        ("CohereLabs/c4ai-command-a-03-2025", "cohere4", False),
        ("speakleash/Bielik-11B-v3.0-Instruct", "hermes_json", False),
        ("google/gemma-3-27b-it", "pythonic", False),
        ("google/gemma-3n-E4B-it", "pythonic", False),
        ("naver-hyperclovax/HyperCLOVAX-SEED-Think-32B", "glm45_xml", False),
        ("miromind-ai/MiroThinker-v1.5-30B", "hermes_json", False),
        ("Alibaba-NLP/Tongyi-DeepResearch-30B-A3B", "hermes_json", False),
        ("Hcompany/Holo2-8B", "hermes_json", False),
        ("baidu/ERNIE-5.0-Thinking", "ernie45", False),
        ("internlm/Intern-S2-Preview", "qwen_xml", True),
    ],
)
def test_format_is_chosen_by_the_name_of_the_model(name, format, thought):
    chosen = choice_by_name((name,))
    assert (chosen.format, chosen.thought_open) == (format, thought)
    assert chosen.reason.startswith("its name matches ")


def test_format_is_auto_for_an_unknown_name():
    assert (choice_by_name(("m",)).format, choice_by_name(("m", "qwen3-8b")).format) == ("auto", "hermes_json")


def test_format_of_the_operator_wins_and_the_profile_still_opens_reasoning():
    chosen = choice_by_name(("qwq-32b",), "think")
    assert (chosen.format, chosen.reason, chosen.thought_open) == ("think", "configured", True)
    assert choice_by_name(("lfm2-1.2b",), "lfm2_pythonic").in_thought == "last"
    assert choice_by_name(("lfm2-1.2b",), "hermes_json").in_thought is None


def test_format_profiles_name_known_formats_and_are_reachable():
    for profile in load_profiles():
        assert profile.format == canonical_name(profile.format) and profile.format in FORMATS
        names = [pattern.replace("[5-9]", "5").replace("[4-9]", "4").replace("[2-9]", "2") for pattern in profile.match]
        names = [name.replace("[7-9]", "7").replace("[56]", "5").strip("*").replace("*", "-") for name in names]
        assert any(find_profile([name])[0] == profile for name in names), profile


def test_format_profile_is_that_of_the_first_pattern_that_fits():
    globs = [(profile, pattern) for profile in load_profiles() for pattern in profile.match]
    words = {pattern.strip("*").replace("*", "-") for _, pattern in globs}
    for name in words | {f"a-{word}-5" for word in words} | {"", "unheard-of", "qwen3.7", "glm-4.6"}:
        assert find_profile([name]) == next((glob for glob in globs if fnmatchcase(name, glob[1])), None)


def test_formats_have_a_profile_unless_they_are_nameless():
    nameless = {"native", "auto", "bare_json", "response_template"}
    assert {profile.format for profile in load_profiles()} == set(FORMATS) - nameless


# By template


def test_format_is_chosen_by_the_signs_of_a_template():
    chosen = choice_by_template("<tool_call> {{ '<function=' + name + '>' }} <parameter= and {\"name\":", FORMATS)
    assert (chosen.format, chosen.reason) == (
        "qwen_xml",
        "its chat template has <tool_call> and <function= and <parameter=",
    )
    assert choice_by_template("<|im_start|>", FORMATS) is None


@pytest.mark.parametrize(
    ("template", "format"),
    [
        (
            "{%- set mark = ']<]minimax[>[' -%}{{ mark ~ '<tool_call>' }} {{ '<response>' ~ text ~ '</response>' }}",
            "minimax_m3",
        ),
        (
            "<|tool_calls|>{% for call in calls %}<|tool_call:begin|>{{ call.id }}<|tool_call:name|>{{ name }}",
            "solar_open",
        ),
        ("<|tool_call:start|>{{ name }}\n<|tool_arg:start|>{{ key }}<|tool_arg:value|>{{ value }}", "solar_open2"),
        ("<|tool_calls|>[{'name': {{ name }}", "sarashina"),
        ("<tool_call>{{ call }}</tool_call><response>{{ text }}</response>", "ernie45"),
        ("<|message_start|>{{ role }}<|tool_call_start|>{{ calls }}<|tool_call_end|>", "openpangu"),
        ("<|tool_call_start|>{{ calls }}<|tool_call_end|>", "lfm2_pythonic"),
    ],
)
def test_format_of_templates_with_tags_of_other_families(template, format):
    assert choice_by_template(template, FORMATS).format == format


@pytest.mark.parametrize(
    ("kind", "path", "answer"),
    [
        ("llamacpp", "/props", {"chat_template": "<tool_call> <function=x> <parameter=y>"}),
        (
            "ollama",
            "/api/show",
            {"template": "<tool_call> <function=x>", "model_info": {"tokenizer.chat_template": "<parameter=y>"}},
        ),
        ("vllm", "/tokenizer_info", {"chat_template": "<tool_call> <function=x> <parameter=y>"}),
    ],
)
async def test_format_of_an_unknown_name_is_chosen_by_the_template(kind, path, answer):
    native = whole(ollama.Turn([ollama.content_line(CALL)]).data(), type="application/x-ndjson")
    async with gateway(native if kind == "ollama" else stream_of(CALL), backend={"kind": kind}) as site:
        site.upstream.shown[path] = whole(answer)
        for _ in range(2):
            got = await site.chat(stream=True, tools=TOOLS, headers=DEBUG)
            assert format_header(got) == "qwen_xml; its chat template has <tool_call> and <function= and <parameter="
            assert parts_of(got) == ("", "", [{"name": "clock", "arguments": "{}"}])
        assert [post.path.partition("?")[0] for post in site.upstream.aside].count(path) == 1


@pytest.mark.parametrize("answer", [whole([]), whole({"chat_template": 7}), whole(b"no"), whole({}, status=500)])
async def test_template_that_cannot_be_read_is_ignored(answer):
    async with gateway(HELLO, backend={"kind": "llamacpp"}) as site:
        site.upstream.shown["/props"] = answer
        assert format_header(await site.chat(headers=DEBUG)).startswith("auto; its name is unknown")


async def test_template_is_asked_for_again_if_the_server_was_unreachable():
    now, paths = [0.0], []

    def answer(request):
        paths.append(request.url.path)
        if now[0] < 30:
            raise httpx.ConnectError("nobody there")
        return httpx.Response(200, json={"chat_template": "hello"})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://up") as http:

        async def client():
            return http

        learner = MetadataCache(client, "llamacpp", lambda: now[0])
        assert await learner.chat_template("m") is None and await learner.chat_template("m") is None
        assert len(paths) == 1
        now[0] = 30.0
        assert [await learner.chat_template("m"), await learner.chat_template("m")] == ["hello", "hello"]
        assert (await learner.metadata_of("m")).template == "hello" and len(paths) == 2


async def test_disconnect_during_the_template_lookup_ends_the_request():
    async with gateway(HELLO, backend={"kind": "llamacpp"}) as site:
        site.upstream.shown["/props"] = [HANG]
        asking = asyncio.create_task(site.chat())
        await until(lambda: len(site.upstream.aside) == 1)
        asking.cancel()
        assert (await asking).status_code == 503
        assert site.upstream.posts == []


def test_format_auto_reads_the_examples_of_all_formats_but_three():
    tools = {"get_weather": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}
    matches = {}
    for name, row in FORMATS.items():
        events = {}
        for format in (name, "auto"):
            normaliser = Normalizer(parser_settings(format, tools=tools))
            found = [*normaliser.feed(TextDelta(0, row.example)), *normaliser.feed(Finish(0, "stop"))]
            events[format] = merge(found)
        matches[name] = events[name] == events["auto"]
    assert {name for name, same in matches.items() if not same} == {"apriel", "functionary32", "hunyuan_a13b"}


# Open reasoning


THINKING = "I think.\n</think>\n\nYes."


@pytest.mark.parametrize(
    ("kind", "path", "answer"),
    [
        ("llamacpp", "/apply-template", {"prompt": "<|im_start|>assistant\n<think>\n"}),
        ("vllm", "/tokenize", {"token_strs": ["<|im_start|>", "assistant", "Ċ", "<think>", "Ċ"]}),
    ],
)
async def test_reasoning_is_open_if_the_rendered_prompt_opens_it(kind, path, answer):
    async with gateway(stream_of(THINKING), backend={"kind": kind}, model={"format": "hermes_json"}) as site:
        site.upstream.shown[path] = whole(answer)
        got = await site.chat(stream=True, headers=DEBUG, chat_template_kwargs={"style": "plain"})
        assert format_header(got) == "hermes_json; configured; responses start inside a thought"
        assert parts_of(got)[:2] == ("I think.\n", "Yes.")
        (post,) = (post for post in site.upstream.aside if post.path == path)
        assert post.json["chat_template_kwargs"] == {"style": "plain"}


async def test_reasoning_is_closed_if_the_rendered_prompt_does_not_open_it():
    async with gateway(
        stream_of("Yes."), backend={"kind": "llamacpp"}, model={"format": "think", "upstream_model": "qwq"}
    ) as site:
        site.upstream.shown["/apply-template"] = whole({"prompt": "<|im_start|>assistant\n"})
        assert parts_of(await site.chat(stream=True))[:2] == ("", "Yes.")


@pytest.mark.parametrize(
    ("fields", "inside"),
    [
        ({}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"chat_template_kwargs": {"thinking": False}}, False),
        ({"chat_template_kwargs": None}, True),
        ({"reasoning_effort": "none"}, False),
        ({"include_reasoning": False}, False),
        ({"enable_thinking": False}, False),
        ({"think": False}, False),
        ({"thinking": {"type": "disabled"}}, False),
        ({"thinking": {"type": "enabled"}}, True),
    ],
)
async def test_reasoning_is_open_by_the_profile_unless_the_client_wants_none(fields, inside):
    async with gateway(stream_of("Yes."), backend={"kind": "sglang"}, model={"upstream_model": "qwq-32b"}) as site:
        assert parts_of(await site.chat(stream=True, **fields))[:2] == (("Yes.", "") if inside else ("", "Yes."))


@pytest.mark.parametrize(("word", "inside"), [("open", True), ("closed", False)])
async def test_reasoning_is_open_or_closed_as_the_operator_says(word, inside):
    async with gateway(stream_of("Yes."), model={"upstream_model": "qwq-32b", "thought": word}) as site:
        assert parts_of(await site.chat(stream=True))[:2] == (("Yes.", "") if inside else ("", "Yes."))


async def test_reasoning_is_closed_if_the_backend_parses_by_itself():
    async with gateway(stream_of("Yes."), backend={"kind": "lmstudio"}, model={"upstream_model": "qwq"}) as site:
        assert parts_of(await site.chat(stream=True))[:2] == ("", "Yes.")


async def test_format_is_chosen_by_the_root_of_a_served_name():
    models = whole(
        {"object": "list", "data": [{"id": "prod", "root": "Qwen/Qwen3-Coder-30B"}, {"id": "odd", "root": 7}]}
    )
    async with gateway(stream_of(CALL), backend={"kind": "sglang"}, model=False, models=models) as site:
        got = await site.chat(model="prod", tools=TOOLS, stream=True, headers=DEBUG)
        assert format_header(got) == "qwen_xml; its name matches *qwen3-coder*"
        assert format_header(await site.chat(model="odd", stream=True, headers=DEBUG)).startswith("auto; ")


# Fields added to the upstream request


@pytest.mark.parametrize(
    ("kind", "format", "wanted"),
    [
        ("vllm", "mistral", {"skip_special_tokens": False, "spaces_between_special_tokens": False}),
        ("sglang", "kimi_k2", {"skip_special_tokens": False}),
        ("vllm", "hermes_json", {}),
        ("llamacpp", "mistral", {}),
    ],
)
async def test_special_tokens_are_kept_for_formats_that_need_them(kind, format, wanted):
    async with gateway(HELLO, backend={"kind": kind}, model={"format": format}) as site:
        await site.chat(stream=True)
        assert {name: value for name, value in site.upstream_body.items() if name.endswith("special_tokens")} == wanted
        await site.chat(stream=True, skip_special_tokens=True)
        assert site.upstream_body.get("skip_special_tokens") is (
            None if kind == "llamacpp" else True
        )  # llama.cpp has no such field


async def test_tool_call_ids_fit_the_template_of_mistral():
    async with gateway(stream_of('[TOOL_CALLS]clock[ARGS]{"a": 1}'), model={"format": "mistral"}) as site:
        answer = await site.chat(tools=TOOLS, stream=True)
        (id,) = (
            call["id"]
            for one in payloads(answer.text)[:-1]
            for choice in one["choices"]
            for call in choice["delta"].get("tool_calls") or ()
            if call.get("id")
        )
        assert len(id) == 9 and id.isalnum()


async def test_response_template_of_the_operator_is_used():
    template = {
        "fields": {
            "thinking": {"open": "<hm>", "close": "</hm>"},
            "tool_calls": {"open": "<do>", "close": "</do>", "content": "json"},
            "content": {},
        }
    }
    model = {"format": "response_template", "response_template": template}
    script = stream_of('<hm>So.</hm>Look:<do>{"name": "clock", "arguments": {"a": 1}}</do>')
    async with gateway(script, backend={"kind": "vllm"}, model=model) as site:
        got = await site.chat(tools=TOOLS, stream=True, headers=DEBUG)
        assert format_header(got) == "response_template; configured"
        assert parts_of(got) == ("So.", "Look:", [{"name": "clock", "arguments": '{"a": 1}'}])
        assert site.upstream_body["skip_special_tokens"] is False


# Forced tool calls


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("choice", "text", "arguments"),
    [
        ("required", '[{"name": "clock", "parameters": {"zone": "CET"}}]', '{"zone": "CET"}'),
        ("required", '{"name": "clock", "arguments": {}}', "{}"),
        (
            {"type": "function", "function": {"name": "clock"}},
            '{"zone": "CET", "name": "x"}',
            '{"zone": "CET", "name": "x"}',
        ),
        ({"type": "function", "function": {"name": "clock"}}, '{"name": "clock", "arguments": {"a": 1}}', '{"a": 1}'),
        ({"type": "function", "function": {"name": "clock"}}, "{}", "{}"),
        ("required", '```json\n{"name": "clock", "arguments": {"a": 1}}\n```', '{"a": 1}'),
        ({"type": "function", "function": {"name": "clock"}}, '```json\n{"zone": "CET"}\n```', '{"zone": "CET"}'),
    ],
)
async def test_tool_call_that_is_forced_is_read_from_guided_json(choice, text, arguments, streamed):
    script = stream_of(text) if streamed else whole(completion_body(text))
    async with gateway(script, backend={"kind": "vllm"}) as site:
        answer = await site.chat(stream=streamed, tools=TOOLS, tool_choice=choice)
        assert parts_of(answer) == ("", "", [{"name": "clock", "arguments": arguments}])


async def test_json_without_a_forced_tool_call_stays_text():
    async with gateway(stream_of('{"name": "Ann", "arguments": {}}'), backend={"kind": "vllm"}) as site:
        assert parts_of(await site.chat(stream=True, tools=TOOLS))[1] == '{"name": "Ann", "arguments": {}}'


# Prefills


BEGUN = "<think>\nI see.\n</think>\n\nIt is "


@pytest.mark.parametrize(
    ("last", "text", "wanted"),
    [
        ({"content": "It is "}, "sunny.", ("", "sunny.", [])),
        ({"content": [{"type": "text", "text": "It is "}]}, "sunny.", ("", "sunny.", [])),
        ({"content": "<think>\nI am not"}, " sure.\n</think>\n\nNo.", (" sure.\n", "No.", [])),
        ({"content": None, "reasoning_content": "I am not"}, " sure.\n</think>\n\nNo.", (" sure.\n", "No.", [])),
        (
            {"content": '<tool_call>\n{"name": "clock", "arguments": {"zone": "C'},
            'ET"}}\n</tool_call>',
            ("", "", [{"name": "clock", "arguments": '{"zone": "CET"}'}]),
        ),
        ({"content": "A <tool"}, "box.", ("", "box.", [])),
    ],
)
async def test_prefill_sets_the_state_in_which_a_response_is_read(last, text, wanted):
    messages = [{"role": "user", "content": "How is it?"}, {"role": "assistant", **last}]
    async with gateway(stream_of(text), backend={"kind": "vllm"}, model={"format": "hermes_json"}) as site:
        answer = await site.chat(
            messages=messages, stream=True, tools=TOOLS, continue_final_message=True, add_generation_prompt=False
        )
        assert parts_of(answer) == wanted


async def test_prefill_repeated_by_the_backend_is_not_sent():
    messages = [{"role": "user", "content": "How is it?"}, {"role": "assistant", "content": BEGUN}]
    for model in ({"format": "hermes_json"}, {"format": "native"}):
        async with gateway(
            whole(completion_body(BEGUN + "sunny.")), stream_of("sunny."), backend={"kind": "llamacpp"}, model=model
        ) as site:
            assert parts_of(await site.chat(messages=messages)) == ("", "sunny.", [])
            assert parts_of(await site.chat(messages=messages, stream=True)) == ("", "sunny.", [])


async def test_prefill_of_reasoning_repeated_by_the_backend_is_not_sent():
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "", "reasoning_content": "I count"}]
    repeated = whole(completion_body("Three.", reasoning_content="I count on."))
    going_on = stream(chunk(reasoning_content=" on."), chunk("Three."), chunk(finish="stop"))
    async with gateway(repeated, going_on, backend={"kind": "llamacpp"}) as site:
        assert parts_of(await site.chat(messages=messages)) == (" on.", "Three.", [])
        assert parts_of(await site.chat(messages=messages, stream=True)) == (" on.", "Three.", [])


@pytest.mark.parametrize("kind", ["llamacpp", "ollama"])
async def test_text_after_a_prefill_of_reasoning_is_text_if_the_server_parses(kind):
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "", "reasoning_content": "I count"}]
    lines = b"".join(json.dumps(one).encode() + b"\n" for one in ({"message": {"content": "Three."}}, {"done": True}))
    answer = stream_of("Three.") if kind == "llamacpp" else [head(type="application/x-ndjson"), lines, END]
    async with gateway(answer, backend={"kind": kind}) as site:
        assert parts_of(await site.chat(messages=messages, stream=True)) == ("", "Three.", [])


async def test_prefill_is_ignored_if_the_server_does_not_continue_it():
    messages = [{"role": "user", "content": "How is it?"}, {"role": "assistant", "content": "<think>\nHm"}]
    async with gateway(stream_of("Sunny."), model={"format": "think"}) as site:
        assert parts_of(await site.chat(messages=messages, stream=True)) == ("", "Sunny.", [])
        assert json.loads(json.dumps(site.upstream_body))["messages"][-1]["content"] == "<think>\nHm"


async def test_logprobs_after_a_prefill_stay_with_the_text():
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "It is "}]
    entry = {"token": "sunny", "logprob": -0.5, "bytes": None, "top_logprobs": []}
    script = stream(
        frame(
            choices=[
                {"index": 0, "delta": {"content": "sunny"}, "logprobs": {"content": [entry]}, "finish_reason": None}
            ]
        ),
        chunk(finish="stop"),
    )
    async with gateway(script, backend={"kind": "vllm"}, model={"format": "think"}) as site:
        answer = await site.chat(messages=messages, stream=True, logprobs=True, continue_final_message=True)
        tokens = [
            one["token"]
            for payload in payloads(answer.text)[:-1]
            for choice in payload["choices"]
            for one in (choice.get("logprobs") or {}).get("content") or ()
        ]
        assert tokens == ["sunny"]


@pytest.mark.parametrize("text", ["A", "func", " func", "{", "[{", "```", "[TOOL_C", "functools", "Action:", "F"])
def test_format_auto_holds_no_text_back_for_tool_calls_without_tools(text):
    normaliser = Normalizer(parser_settings("auto", tools={}))
    assert [*normaliser.feed(TextDelta(0, text))] == [TextDelta(0, text)]


def test_format_auto_finds_reasoning_without_tools():
    for text in ("[THINK]Hm.[/THINK]Yes.", "<|channel|>analysis<|message|>Hm.<|end|><|channel|>final<|message|>Yes."):
        normaliser = Normalizer(parser_settings("auto", tools={}))
        found = merge([*normaliser.feed(TextDelta(0, text)), *normaliser.feed(Finish(0, "stop"))])
        assert [event.text for event in found[:2]] == ["Hm.", "Yes."]
