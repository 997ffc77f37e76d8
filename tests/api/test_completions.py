"""Test /v1/completions: its shape, the fields that each kind is sent, echo, suffix, log probabilities and errors.

https://platform.openai.com/docs/api-reference/completions
"""

import asyncio
import json

import pytest

from gateway import events as ev
from gateway.api import chat, completions
from gateway.backends.kinds import ROWS
from gateway.errors import BadRequest
from gateway.transforms.text_filters import LLAMA_ENDS, EchoFilter, Ending, StopFilter
from gateway.warnings import Warnings
from support.app import bearer, gateway, listening, problem
from support.sse import comments, payloads, text_of_stream
from support.upstream import COUNTS, DONE, END, HANG, KEY, RESET, head, stream, whole
from support.wait import until

BAD = "invalid_request_error"
KINDS = tuple(name for name, row in ROWS.items() if row.services.completions)


def piece(text="", *, index=0, finish=None, logprobs=None, **more):
    """Return a frame of a streamed completion."""
    choice = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish, **more}
    return frame(choices=[choice])


def frame(**members):
    body = {"id": "up-1", "object": "text_completion", "created": 1, "model": "theirs", **members}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def body(*texts, finish="stop", usage=COUNTS, **more):
    """Return a whole completion with these choices."""
    choices = [
        {"text": text, "index": i, "logprobs": None, "finish_reason": finish, **more} for i, text in enumerate(texts)
    ]
    return whole({"id": "up-1", "object": "text_completion", "created": 1, "choices": choices, "usage": usage})


OSLO = stream(piece(" Os"), piece("lo"), piece(finish="stop"), frame(choices=[], usage=COUNTS))


async def complete(site, *, headers=None, **fields):
    return await site.client.post("/v1/completions", json={"model": "m", "prompt": "Hi", **fields}, headers=headers)


def of(kind):
    return {"backend": {"kind": kind}}


def texts_of(text):
    texts = {}
    for chunk in payloads(text):
        for choice in chunk["choices"] if isinstance(chunk, dict) else ():
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts


# Responses


async def test_stream_has_the_shape_of_the_api():
    async with gateway(OSLO) as site:
        answer = await complete(site, stream=True)
        assert site.upstream.posts[0].path == "/v1/completions"
        assert site.upstream_body == {
            "model": "m", "prompt": "Hi", "stream": True, "max_tokens": 16, "stream_options": {"include_usage": True},
        }  # fmt: skip
    *chunks, done = payloads(answer.text)
    assert done == "[DONE]" and answer.headers["content-type"].startswith("text/event-stream")
    assert [chunk["choices"][0]["text"] for chunk in chunks] == [" Os", "lo", ""]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "stop"]
    assert {chunk["id"][:5] for chunk in chunks} == {"cmpl-"} and len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0].keys() == {"id", "object", "created", "model", "choices"}
    assert chunks[0]["choices"][0].keys() == {"text", "index", "logprobs", "finish_reason"}
    assert {(chunk["object"], chunk["model"]) for chunk in chunks} == {("text_completion", "m")}


async def test_whole_response_has_the_shape_of_the_api():
    async with gateway(body(" Oslo")) as site:
        answer = await complete(site, user="me", metadata={"a": "b"})
        assert site.upstream_body["user"] == "me"
    payload = answer.json()
    assert payload.pop("id").startswith("cmpl-") and payload.pop("created") > 1
    assert payload == {
        "object": "text_completion",
        "model": "m",
        "choices": [{"text": " Oslo", "index": 0, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            **COUNTS,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }
    assert answer.headers["x-gateway-warnings"] == "forwarded:metadata"


async def test_usage_comes_at_the_end_if_requested():
    async with gateway(OSLO) as site:
        answer = await complete(site, stream=True, stream_options={"include_usage": True, "include_obfuscation": True})
        assert site.upstream_body["stream_options"] == {"include_usage": True}
    *chunks, last, _ = payloads(answer.text)
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == [] and last["usage"]["total_tokens"] == 9


async def test_usage_comes_with_every_chunk_if_requested():
    counted = {"usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    script = stream(frame(choices=[{"text": "a", "index": 0}], **counted), piece("b"), piece(finish="length"))
    async with gateway(script) as site:
        answer = await complete(site, stream=True, stream_options={"continuous_usage_stats": True})
    assert [chunk["usage"]["total_tokens"] for chunk in payloads(answer.text)[:-1]] == [2, 2, 2]


async def test_usage_is_estimated_if_the_backend_sends_none():
    async with gateway(stream(piece("x" * 8), piece(finish="stop"))) as site:
        answer = await complete(site, prompt=["x" * 12, [1, 2, 3]], stream=True, stream_options={"include_usage": True})
    usage = payloads(answer.text)[-2]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (6, 2)
    assert "estimated:usage" in comments(answer.text)[0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [("stop", "stop"), ("length", "length"), ("max_tokens", "length"), ("eos", "stop"), ("odd", "stop")],
)
async def test_finish_reason_becomes_one_of_the_api(given, expected):
    async with gateway(stream(piece("a"), piece(finish=given)), body("a", finish=given)) as site:
        streamed, at_once = await complete(site, stream=True), await complete(site)
    assert payloads(streamed.text)[-2]["choices"][0]["finish_reason"] == expected
    assert at_once.json()["choices"][0]["finish_reason"] == expected


async def test_finish_reason_that_is_missing_is_synthesized_with_a_warning():
    async with gateway(stream(piece("a"))) as site:
        answer = await complete(site, stream=True)
    assert payloads(answer.text)[-2]["choices"][0]["finish_reason"] == "stop"
    assert "synthesised:finish_reason" in comments(answer.text)[0]


async def test_text_is_not_parsed():
    text = '<think>so</think><tool_call>{"name": "f"}</tool_call><|im_end|>'
    async with gateway(stream(*map(piece, text), piece(finish="stop")), model={"format": "hermes_json"}) as site:
        answer = await complete(site, stream=True, headers={"x-gateway-debug": "1"})
    assert texts_of(answer.text) == {0: text}
    assert answer.headers["x-gateway-format"] == "native; a completed text is not parsed"


async def test_field_added_by_a_backend_reaches_the_client():
    script = stream(
        frame(choices=[], prompt_token_ids=[1, 2]), piece("a", token_ids=[1]), piece(finish="stop", stop_reason="x")
    )
    async with gateway(script, body("a", stop_reason="x", token_ids=[3])) as site:
        streamed = await complete(site, stream=True, return_token_ids=True)
        at_once = await complete(site, return_token_ids=True)
    extra, first, last, _ = payloads(streamed.text)
    assert extra["prompt_token_ids"] == [1, 2] and extra["choices"] == []
    assert first["choices"][0]["token_ids"] == [1] and last["choices"][0]["stop_reason"] == "x"
    (choice,) = at_once.json()["choices"]
    assert choice["token_ids"] == [3] and choice["stop_reason"] == "x"


async def test_field_beside_the_choices_stays_in_the_whole_response():
    odd = {"id": "up", "choices": [{"text": "a", "index": 0, "finish_reason": "stop"}], "prompt_token_ids": [1]}
    async with gateway(whole(odd)) as site:
        answer = await complete(site, return_token_ids=True)
    assert answer.json()["prompt_token_ids"] == [1]


@pytest.mark.parametrize("size", [1, 3, 7, 64])
async def test_stream_is_the_same_for_any_split_of_its_bytes(size):
    cut = b"".join(step for step in OSLO[1:-1])
    pieces = [cut[i : i + size] for i in range(0, len(cut), size)]
    async with gateway([head(), *pieces, END], OSLO) as site:
        first, second = [payloads((await complete(site, stream=True)).text) for _ in range(2)]
    assert [chunk["choices"] for chunk in first[:-1]] == [chunk["choices"] for chunk in second[:-1]]


# Several prompts, several choices


async def test_choices_of_several_prompts_keep_their_index():
    script = stream(
        b"data: null\n\n",
        piece("c", index=1),
        piece("a", index=0),
        piece(finish="stop", index=1),
        piece(finish="length"),
    )
    async with gateway(script, body("a", "b", "c", "d"), **of("llamacpp")) as site:
        streamed = await complete(site, prompt=["x", "y"], stream=True)
        assert site.upstream_body["prompt"] == ["x", "y"] and "n" not in site.upstream_body
        at_once = await complete(site, prompt=[[1, 2], [3]], n=2)
        assert (site.upstream_body["prompt"], site.upstream_body["n"]) == ([[1, 2], [3]], 2)
    assert texts_of(streamed.text) == {0: "a", 1: "c"} and not comments(streamed.text)
    assert streamed.headers["x-gateway-warnings"] == "estimated:usage"
    assert [choice["text"] for choice in at_once.json()["choices"]] == ["a", "b", "c", "d"]


async def test_choices_that_are_missing_are_a_warning():
    async with gateway(OSLO, body("a")) as site:
        streamed, at_once = await complete(site, n=2, stream=True), await complete(site, n=2)
    assert "unenforced:n" in comments(streamed.text)[0]
    assert at_once.headers["x-gateway-warnings"] == "unenforced:n"


async def test_prompt_of_tokens_is_one_prompt():
    async with gateway(body("a")) as site:
        assert (await complete(site, prompt=[1, 2, 3])).status_code == 200
        assert site.upstream_body["prompt"] == [1, 2, 3]


@pytest.mark.parametrize("kind", ["ollama", "lmstudio", "transformers"])
@pytest.mark.parametrize("prompt", [["a", "b"], [1, 2], [[1], [2]]])
async def test_prompt_list_is_refused_by_a_kind_that_takes_one_text(kind, prompt):
    async with gateway(body("a"), **of(kind)) as site:
        assert problem(await complete(site, prompt=prompt)) == (400, BAD, "unsupported_value", "prompt")
        assert (await complete(site, prompt=["alone"])).status_code == 200
        assert site.upstream_body["prompt"] == "alone"


# Fields, by kind

EVERYTHING = {
    "best_of": 3, "echo": True, "frequency_penalty": 0.5, "logit_bias": {"1": 2}, "logprobs": 2, "max_tokens": 9,
    "presence_penalty": 0.5, "seed": 1, "stop": ["x"], "suffix": "end", "temperature": 0.5, "top_p": 0.5, "user": "me",
}  # fmt: skip
LOST = {
    "openai": (set(), ""),
    "vllm": ({"best_of", "user"}, "unenforced:best_of"),
    "llamacpp": ({"best_of", "echo", "suffix", "user"}, "unenforced:best_of, dropped:suffix, dropped:echo"),
    "ollama": (
        {"best_of", "echo", "logit_bias", "logprobs", "user"},
        "translated:prompt, unenforced:best_of, dropped:logit_bias, dropped:logprobs, dropped:echo",
    ),
    "lmstudio": (
        {"best_of", "echo", "logprobs", "suffix", "user"},
        "unenforced:best_of, dropped:logprobs, dropped:suffix, dropped:echo",
    ),
    "sglang": ({"best_of", "user"}, "unenforced:best_of"),
    "transformers": (
        {"best_of", "echo", "logit_bias", "logprobs", "presence_penalty", "suffix", "user"},
        "unenforced:best_of, dropped:logit_bias, dropped:logprobs, dropped:presence_penalty, dropped:suffix, "
        "dropped:echo",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_field_is_sent_or_named_in_a_warning(kind):
    lost, warnings = LOST[kind]
    async with gateway(body("a"), **of(kind)) as site:
        answer = await complete(site, **EVERYTHING)
        sent = {name: value for name, value in EVERYTHING.items() if name not in lost}
        assert site.upstream_body == {"model": "m", "prompt": "Hi", "stream": False, **sent}
    assert answer.headers.get("x-gateway-warnings", "") == warnings


@pytest.mark.parametrize("kind", KINDS)
async def test_field_with_its_default_value_is_not_sent(kind):
    async with gateway(body("a"), **of(kind)) as site:
        answer = await complete(site, n=1, best_of=1, echo=False, suffix="", stop="x")
        assert site.upstream_body == {"model": "m", "prompt": "Hi", "stream": False, "max_tokens": 16, "stop": "x"}
    assert answer.headers.get("x-gateway-warnings") == ("translated:prompt" if kind == "ollama" else None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limits", [{"max_completion_tokens": 50}, {"max_tokens": 50, "max_completion_tokens": 60}])
async def test_limit_may_have_its_name_of_chat(kind, limits):
    async with gateway(body("a"), **of(kind)) as site:
        assert (await complete(site, **limits)).status_code == 200
        assert site.upstream_body == {"model": "m", "prompt": "Hi", "stream": False, "max_tokens": 50}


async def test_extension_field_is_renamed_for_the_kind():
    async with gateway(body("a"), **of("llamacpp")) as site:
        answer = await complete(site, repetition_penalty=1.5, unheard_of=1)
        assert (site.upstream_body["repeat_penalty"], site.upstream_body["unheard_of"]) == (1.5, 1)
        assert "renamed:repetition_penalty" in answer.headers["x-gateway-warnings"]
        assert "forwarded:unheard_of" in answer.headers["x-gateway-warnings"]
        strict = await complete(site, suffix="x", headers={"x-gateway-strict": "1"})
    assert problem(strict) == (400, BAD, "unsupported_parameter", "suffix")


async def test_field_that_a_kind_takes_only_for_chat_is_not_sent():
    async with gateway(body("a"), **of("transformers")) as site:
        answer = await complete(site, chat_template_kwargs={"enable_thinking": False}, generation_config="{}")
        assert "chat_template_kwargs" not in site.upstream_body and site.upstream_body["generation_config"] == "{}"
    warnings = "dropped:chat_template_kwargs.enable_thinking, forwarded:generation_config"
    assert answer.headers["x-gateway-warnings"] == warnings


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"prompt": None}, "missing_required_parameter", "prompt"),
        ({"prompt": {}}, "invalid_type", "prompt"),
        ({"prompt": []}, "empty_array", "prompt"),
        ({"prompt": [1, "a"]}, "invalid_type", "prompt[1]"),
        ({"prompt": ["a", 1]}, "invalid_type", "prompt[1]"),
        ({"prompt": [[]]}, "empty_array", "prompt[0]"),
        ({"prompt": [True]}, "invalid_type", "prompt[0]"),
        ({"prompt": ["a"] * 2049}, "array_above_max_length", "prompt"),
        ({"max_tokens": -1}, "integer_below_min_value", "max_tokens"),
        ({"logprobs": True}, "invalid_type", "logprobs"),
        ({"stop": 1}, "invalid_type", "stop"),
        ({"stream_options": {}}, None, "stream_options"),
        ({"n": 3, "best_of": 2}, "invalid_value", "best_of"),
        ({"best_of": 2, "stream": True}, "invalid_value", "best_of"),
    ],
)  # fmt: skip
async def test_request_not_allowed_by_the_api_is_refused(fields, code, param):
    async with gateway(body("a")) as site:
        assert problem(await complete(site, **fields)) == (400, BAD, code, param)
        assert site.upstream.posts == []


# Echo and suffix


async def test_echo_is_emulated_if_the_backend_cannot():
    script = stream(piece(" b", index=1), piece(" a"), piece(finish="stop"), piece(finish="stop", index=1))
    async with gateway(script, body("", " b"), **of("llamacpp")) as site:
        streamed = await complete(site, prompt=["A", "B"], echo=True, stream=True)
        at_once = await complete(site, prompt=["A", "B"], echo=True)
        assert "echo" not in site.upstream_body
    assert texts_of(streamed.text) == {0: "A a", 1: "B b"}
    assert [choice["text"] for choice in at_once.json()["choices"]] == ["A", "B b"]
    assert "emulated:echo" in streamed.headers["x-gateway-warnings"]


async def test_echo_of_a_prompt_of_tokens_is_dropped():
    async with gateway(body(" a"), **of("llamacpp")) as site:
        answer = await complete(site, prompt=[1, 2], echo=True)
    assert answer.json()["choices"][0]["text"] == " a" and answer.headers["x-gateway-warnings"] == "dropped:echo"


def test_echo_comes_once_for_each_choice():
    echo = EchoFilter(["A", "B"], 2)
    usage = ev.Usage(1, 1)
    outputs = [echo.feed(event) for event in (ev.TextDelta(3, "x"), usage, ev.TextDelta(3, "y"), ev.Finish(3, "stop"))]
    assert outputs == [
        (ev.TextDelta(3, "B"), ev.TextDelta(3, "x")),
        (usage,),
        (ev.TextDelta(3, "y"),),
        (ev.Finish(3, "stop"),),
    ]
    assert echo.feed(ev.Finish(0, "stop")) == (ev.TextDelta(0, "A"), ev.Finish(0, "stop")) and echo.close() == ()


ENDINGS = [
    ("Oslo.<|eot_id|>", "length", "Oslo.", "stop"),
    ("Oslo.\n<|eom_id|><|eot_id|>", "stop", "Oslo.\n", "stop"),
    ("The token <|eot_id|> ends", "length", "The token <|eot_id|> ends", "length"),
    ("Oslo.<|eot", "length", "Oslo.<|eot", "length"),
]


@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize(("upstream_text", "reason", "text", "end"), ENDINGS)
async def test_end_tokens_of_llama_are_cut_at_the_end_of_a_completion(upstream_text, reason, text, end, size):
    pieces = [piece(upstream_text[i : i + size]) for i in range(0, len(upstream_text), size)]
    answer = stream(*pieces, piece(finish=reason), frame(choices=[], usage=COUNTS))
    async with gateway(answer, body(upstream_text, finish=reason), model={"upstream_model": "Llama-3.1-8B"}) as site:
        streamed = (await complete(site, stream=True)).text
        assert texts_of(streamed) == {0: text}
        assert [c["choices"][0]["finish_reason"] for c in payloads(streamed) if c != "[DONE]" and c["choices"]][
            -1
        ] == end
        [choice] = (await complete(site)).json()["choices"]
        assert (choice["text"], choice["finish_reason"]) == (text, end)


async def test_end_tokens_of_llama_are_text_of_other_models():
    async with gateway(body("Oslo.<|eot_id|>")) as site:
        assert (await complete(site)).json()["choices"][0]["text"] == "Oslo.<|eot_id|>"


def test_end_token_that_is_incomplete_precedes_a_failure():
    ending, failure = Ending(LLAMA_ENDS), ev.Failure(None)
    assert [*ending.feed(ev.TextDelta(0, "a<|eot")), *ending.feed(failure), *ending.close()] == [
        ev.TextDelta(0, "a"),
        ev.TextDelta(0, "<|eot"),
        failure,
    ]


@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize(
    ("upstream_text", "text"),
    [
        ("middle<|endoftext|>", "middle"),
        ("a <|b <fim_<EOT>and another file", "a <|b <fim_"),
        ("if a <", "if a <"),
        ("<|fim_pad", "<|fim_pad"),
        ("<|file_sep|>", ""),
    ],
)
async def test_suffix_completion_ends_at_the_end_marker_of_the_model(upstream_text, text, size):
    pieces = [piece(upstream_text[i : i + size]) for i in range(0, len(upstream_text), size)]
    async with gateway(stream(*pieces, piece(finish="stop")), **of("vllm")) as site:
        answer = await complete(site, suffix="end", stream=True)
        assert site.upstream_body["suffix"] == "end"
    assert texts_of(answer.text) == {0: text}


async def test_suffix_marker_is_text_if_no_suffix_is_requested():
    async with gateway(body("a<EOT>"), **of("vllm")) as site:
        assert (await complete(site)).json()["choices"][0]["text"] == "a<EOT>"


def test_text_held_back_comes_before_an_error():
    until, failure = StopFilter(["<|pad|>"]), ev.Failure(None)
    assert until.feed(ev.TextDelta(0, "a<|")) == (ev.TextDelta(0, "a"),)
    assert until.feed(ev.Usage(1, 1)) == (ev.Usage(1, 1),)
    assert until.feed(failure) == (ev.TextDelta(0, "<|"), failure) and until.close() == ()


@pytest.mark.parametrize("named", [False, True])
def test_stop_sequence_behind_a_tool_call_ends_the_turn_with_the_call(named):
    until, start = StopFilter(["Observation:"], named=named), ev.ToolCallStart(0, 0, "c", "f")
    assert until.feed(start) == (start,)
    assert until.feed(ev.TextDelta(0, "\nObservation: 7")) == (ev.TextDelta(0, "\n"), ev.Finish(0, "tool_calls"))


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("stop", "upstream_text", "text"),
    [
        (" is", "Oslo is", "Oslo"),
        (["x", " is in", ""], "Oslo is in Norway", "Oslo"),
        (" is not", "Oslo is", "Oslo is"),
        ("", "a", "a"),
    ],
)
async def test_stop_sequence_left_in_the_text_is_cut_off(stop, upstream_text, text, size):
    pieces = [piece(upstream_text[i : i + size]) for i in range(0, len(upstream_text), size)]
    async with gateway(stream(*pieces, piece(finish="stop")), **of("transformers")) as site:
        answer = await complete(site, stop=stop, stream=True)
        assert site.upstream_body["stop"] == stop
    assert texts_of(answer.text) == {0: text}


# Log probabilities

OLD = {
    "tokens": ["Hi", " Os", "lo"], "token_logprobs": [None, -0.5, -0.25], "text_offset": [0, 2, 5],
    "top_logprobs": [None, {" Os": -0.5, " Ro": -1.0, " Be": -2.0}, {"la": -0.1, "le": -0.2}],
}  # fmt: skip


def entry(token, logprob, **top):
    tops = [{"token": name, "logprob": chance, "bytes": None} for name, chance in top.items()]
    return {"token": token, "logprob": logprob, "bytes": None, "top_logprobs": tops}


async def test_logprobs_have_the_shape_of_completions():
    streamed = stream(
        piece("Hi Os", logprobs={name: column[:2] for name, column in OLD.items()}),
        piece("lo", logprobs={name: column[2:] for name, column in OLD.items()}),
        piece(finish="stop"),
    )
    async with gateway(streamed, body("Hi Oslo", logprobs=OLD)) as site:
        answer = await complete(site, logprobs=2, echo=True, stream=True)
        at_once = (await complete(site, logprobs=2, echo=True)).json()["choices"][0]["logprobs"]
    assert at_once == {
        "tokens": ["Hi", " Os", "lo"],
        "token_logprobs": [None, -0.5, -0.25],
        "top_logprobs": [None, {" Os": -0.5, " Ro": -1.0}, {"la": -0.1, "le": -0.2, "lo": -0.25}],
        "text_offset": [0, 2, 5],
    }
    chunks = [chunk["choices"][0]["logprobs"] for chunk in payloads(answer.text)[:2]]
    assert {name: chunks[0][name] + chunks[1][name] for name in at_once} == at_once


async def test_logprobs_of_chat_become_the_shape_of_completions():
    content = [entry(" Os", -0.5, **{" Os": -0.5, " Ro": -1.0}), entry("lo", -0.25)]
    async with gateway(body(" Oslo", logprobs={"content": content}), **of("llamacpp")) as site:
        answer = await complete(site, logprobs=0)
        assert site.upstream_body["logprobs"] == 1, "0 would turn them off"
    assert answer.json()["choices"][0]["logprobs"] == {
        "tokens": [" Os", "lo"], "token_logprobs": [-0.5, -0.25], "text_offset": [0, 3],
        "top_logprobs": [{" Os": -0.5}, {"lo": -0.25}],
    }  # fmt: skip


async def test_logprobs_are_hidden_if_not_requested():
    script = stream(piece("a", logprobs=-0.5), piece(finish="stop"))
    async with gateway(script, body("a", logprobs=-0.5)) as site:
        streamed, at_once = await complete(site, stream=True), await complete(site)
    assert payloads(streamed.text)[0]["choices"][0]["logprobs"] is None
    assert at_once.json()["choices"][0]["logprobs"] is None


# Errors


@pytest.mark.parametrize(
    ("script", "known"),
    [
        (whole({"error": {"message": "model 'x' not found"}}, status=404), (404, BAD, "model_not_found", "model")),
        (
            whole({"error": {"type": "exceed_context_size_error", "message": "too long"}}, status=400),
            (400, BAD, "context_length_exceeded", "prompt"),
        ),
        (whole({"error": {"message": "no", "param": "suffix"}}, status=400), (400, BAD, None, "suffix")),
        (whole(b"Method Not Allowed", status=405), (400, BAD, "unsupported_value", "model")),
        (whole({"error": "busy"}, status=503), (503, "server_error", "server_is_overloaded", None)),
        (whole({"object": "list"}), (502, "server_error", "upstream_error", None)),
        (whole(b"null"), (502, "server_error", "upstream_error", None)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("streamed", [True, False])
async def test_backend_error_becomes_a_status_of_the_api(script, known, streamed):
    async with gateway(script) as site:
        answer = await complete(site, stream=streamed)
    assert problem(answer) == known and KEY not in answer.text


async def test_stream_error_comes_after_the_text():
    async with gateway([head(), piece("half"), RESET], stream(piece("a"), frame(error={"message": "x"}))) as site:
        lost, failed = await complete(site, stream=True), await complete(site, stream=True)
    for answer, code in ((lost, "upstream_lost"), (failed, "upstream_error")):
        first, error = payloads(answer.text)
        assert first["choices"][0]["text"] in ("half", "a") and error["error"]["code"] == code
    async with gateway([head(type="application/json"), b'{"choices', RESET]) as site:
        assert problem(await complete(site)) == (502, "server_error", "upstream_lost", None)


async def test_keep_alive_fills_a_silence_before_the_first_chunk():
    go = asyncio.Event()
    script = [head(), go, piece("a"), piece(finish="stop"), DONE, END]

    def on_text(text):
        if ": keep-alive" in comments(text):
            go.set()

    async with listening(script, stream={"grace_seconds": 0.01, "keepalive_seconds": 0.02}) as site:
        _, text = await text_of_stream(site, "/v1/completions", on_text, prompt="Hi")
    assert ": keep-alive" in comments(text) and texts_of(text) == {0: "a"}


@pytest.mark.parametrize("streamed", [True, False])
async def test_client_disconnect_ends_the_upstream_call(streamed):
    script = [head(type="text/event-stream" if streamed else "application/json"), piece("a"), HANG]
    async with listening(script) as site:
        request = asyncio.create_task(complete(site, stream=streamed))
        await until(lambda: site.upstream.sent, sum(map(len, script[:-1])))
        request.cancel()
        await until(site.upstream.gone.is_set)


async def test_api_key_is_limited_to_its_models():
    keys = {"keys": [{"name": "one", "key": "k1", "models": ["z"]}, {"name": "boss", "key": "k2", "scopes": ["admin"]}]}
    async with gateway(body("a"), auth=keys) as site:
        assert (await complete(site)).status_code == 401
        for key, code in (("k1", "model_not_allowed"), ("k2", None)):
            answer = await complete(site, headers=bearer(key))
            assert problem(answer)[0] == 403 and (code is None or problem(answer)[2] == code)


async def test_idempotency_key_replays_the_first_response():
    async with gateway(body("a")) as site:
        first, second = [await complete(site, headers={"idempotency-key": "k"}) for _ in range(2)]
        assert len(site.upstream.posts) == 1
    assert first.content == second.content and second.headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize("streamed", [True, False])
def test_encoder_handles_every_event(streamed):
    params = completions.parse_completion(json.dumps({"model": "m", "prompt": "x", "stream": streamed}).encode())
    encoder = completions.completion_encoder(completions.CompletionHead("c", 1, "m"), params, Warnings())
    for event in (
        ev.ReasoningDelta(0, "so"),
        ev.RefusalDelta(0, "no"),
        ev.ToolCallStart(0, 0, "i", "f"),
        ev.ToolCallEnd(0, 0),
    ):
        assert encoder.encode([event]) == b"", "a backend that completes text sends none of these"
    assert encoder.start() == b"" and encoder.stored_object() is None
    assert encoder.keep_alive() == (b": keep-alive\n\n" if streamed else b"")
    if streamed:
        assert set(ev.Event.__args__) == set(encoder._arms)


NOTHING = {
    "no body": whole(b""),
    "no choices": whole({"choices": []}),
    "a choice without a text": whole({"choices": [{"index": 0, "finish_reason": "stop"}]}),
    "only [DONE]": stream(),
    "a chunk without a text": stream(frame(choices=[{"index": 0, "finish_reason": "stop"}])),
}


@pytest.mark.parametrize("name", NOTHING)
async def test_completion_without_a_text_is_a_failure_of_the_backend(name):
    async with gateway(NOTHING[name]) as site:
        for streamed in (False, True):
            assert problem(await complete(site, stream=streamed)) == (502, "server_error", "upstream_error", None)


@pytest.mark.parametrize(
    ("bias", "code"),
    [("x", "invalid_type"), (None, "invalid_type"), (101, "decimal_above_max_value"), (False, None), (-100, None)],
)
@pytest.mark.parametrize(
    ("parse", "field"),
    [
        (completions.parse_completion, {"prompt": "a"}),
        (chat.parse_chat, {"messages": [{"role": "user", "content": "a"}]}),
    ],
)
def test_logit_bias_is_numbers_or_false(parse, field, bias, code):
    body = json.dumps({"model": "m", **field, "logit_bias": {"50": bias}}).encode()
    if code is None:
        assert parse(body).request.rest["logit_bias"] == {"50": bias}
        return
    with pytest.raises(BadRequest) as refused:
        parse(body)
    assert (refused.value.problem.code, refused.value.problem.param) == (code, "logit_bias.50")
