"""Test token limits that do not fit beside the prompt: cut before the request, or after the backend's error."""

import pytest

from api.test_completions import OSLO
from api.test_completions import body as completed
from gateway.backends.openai.error_mapping import Excess, excess
from support.app import HELLO_MESSAGES, gateway, problem
from support.backends import circuit_state, fleet
from support.sse import payloads
from support.upstream import HELLO, completion_body, frame, stream, whole

BAD = "invalid_request_error"
WINDOW = "This model's maximum context length is"
VLLM = f"'max_tokens' or 'max_completion_tokens' is too large: 9000. {WINDOW} 8192 tokens and your request has 500 input tokens (9000 > 8192 - 500)."
BEGINNING = (
    "You passed 193 input tokens and requested 8000 output tokens. However, the model's context length is only 8192 "
    "tokens, resulting in a maximum input length of 192 tokens. Please reduce the length of the input prompt."
)
# By server: its words, and the largest limit that they leave, where they name it
LIMITS = {
    "vllm": (VLLM, 7692),
    "vllm: in messages and completion": (f"{WINDOW} 8192 tokens. However, you requested 9100 tokens (100 in the messages, 9000 in the completion).", 8092),
    "vllm: output tokens": (f"{WINDOW} 8192 tokens. However, you requested 9000 output tokens and your prompt contains 300 input tokens, for a total of 9300 tokens.", 7892),
    "vllm: at least": (f"{WINDOW} 8192 tokens. However, you requested 8000 output tokens and your prompt contains at least 193 input tokens.", 7999),
    "vllm: characters": (f"{WINDOW} 8192 tokens. However, you requested 8192 output tokens and your prompt contains 99 characters (more than 0 characters, which is the upper bound for 0 input tokens).", None),
    "vllm: passed": (BEGINNING, 7999),
    "vllm: passed characters": ("You passed 99 input characters and requested 8192 output tokens. However, the model's context length is only 8192 tokens.", None),
    "vllm: window less limit": (f"{WINDOW} 3 tokens. However, your request has 8 input tokens. Please reduce the length of the input messages. (parameter=input_tokens, value=8)", None),
    "vllm: engine": ("max_completion_tokens=9000 cannot be greater than max_model_len=max_total_tokens=8192.", None),
    "openai": (f"{WINDOW} 8192 tokens, however you requested 9050 tokens (50 in your prompt; 9000 for the completion).", 8142),
    "openai: functions": (f"{WINDOW} 8192 tokens. However, you requested 9100 tokens (70 in the messages, 30 in the functions, and 9000 in the completion).", 8092),
    "openai: of the model": ("max_tokens is too large: 9000. This model supports at most 4096 completion tokens, whereas you provided 9000.", 4096),
    "openrouter": ("This endpoint's maximum context length is 8192 tokens. However, you requested about 9300 tokens (200 of text input, 100 of tool input, 9000 in the output).", 7892),
    "deepseek": ("Invalid max_tokens value, the valid range of max_tokens is [1, 4096]", 4096),
    "groq": ("`max_tokens` must be less than or equal to `4096`, the maximum value for `max_tokens` is less than the `context_window`", 4096),
    "sglang": ("Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9012.0 tokens: 12 tokens from the input messages and 9000.0 tokens for the completion.", 8180),
    "sglang: total": ("Requested token count exceeds the model's maximum context length of 8192 tokens.", None),
    "tgi": ("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 92 `inputs` tokens and 9000 `max_new_tokens`", 8100),
    "tgi: without counts": ("`inputs` tokens + `max_new_tokens` must be <= 8192", None),
    "tgi: new tokens": ("Input validation error: `max_new_tokens` must be <= 4096. Given: 9000", 4096),
    "anthropic": ("input length and `max_tokens` exceed context limit: 192 + 9000 > 8192, decrease input length or `max_tokens`", 8000),
    "anthropic: of the model": ("max_tokens: 9000 > 4096, which is the maximum allowed number of output tokens for m", 4096),
    "tensorrt": ("The sum of prompt length (192.0), query length (0) and max_tokens (9000) should not exceed max_seq_len (8192)", 8000),
    "llama-cpp-python": ("Requested tokens exceed context window of 8192", None),
    "any: both numbers": ("max_tokens 9000 and 192 prompt tokens do not fit into the context window of 8192 tokens", 8000),
    "any: in words": ("The prompt (192 tokens) plus max_tokens (9000) exceeds the context size of 8192.", 8000),
    "any: no number": ("max_output_tokens (9000) is too high for this model", None),
}  # fmt: skip
PROMPTS = {
    "vllm: in messages and completion": f"{WINDOW} 8192 tokens. However, you requested 9100 tokens (9000 in the messages, 100 in the completion).",
    "vllm: passed": "You passed 8193 input tokens and requested 0 output tokens. However, the model's context length is only 8192 tokens.",
    "vllm: at least": f"{WINDOW} 8192 tokens. However, your prompt contains at least 8193 input tokens.",
    "vllm: negative": "max_tokens must be at least 1, got -186.",
    "sglang": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    "tgi": "`inputs` tokens + `max_new_tokens` must be <= 8192. Given: 9000 `inputs` tokens and 1 `max_new_tokens`",
    "llama.cpp": "request (9010 tokens) exceeds the available context size (8192 tokens), try increasing it",
}  # fmt: skip
# By API: its path, its fields, the name of its limit, and a whole and a streamed response of the backend
APIS = {
    "chat": ("/v1/chat/completions", {"messages": HELLO_MESSAGES}, "max_tokens", whole(completion_body()), HELLO),
    "newer": (
        "/v1/chat/completions",
        {"messages": HELLO_MESSAGES},
        "max_completion_tokens",
        whole(completion_body()),
        HELLO,
    ),
    "completions": ("/v1/completions", {"prompt": "Hello"}, "max_tokens", completed("Hi"), OSLO),
    "responses": ("/v1/responses", {"input": "Hello"}, "max_output_tokens", whole(completion_body()), HELLO),
}
BOTH = pytest.mark.parametrize("streamed", [False, True])


def refusal(message, status=400):
    return whole({"error": {"message": message, "type": "BadRequestError", "param": None, "code": status}}, status)


async def ask(site, api, *, streamed=False, limit=9000, **more):
    path, fields, name, *_ = APIS[api]
    limited = {} if limit is None else {name: limit}
    return await site.client.post(path, json={"model": "m", "stream": streamed, **fields, **limited, **more})


def limits_of(site):
    """Return the limits that the backend has got, whatever they are called."""
    names = ("max_tokens", "max_completion_tokens")
    return [next((post.json[name] for name in names if name in post.json), None) for post in site.upstream.posts]


@pytest.mark.parametrize("server", LIMITS)
def test_limit_error_names_what_the_prompt_leaves(server):
    message, room = LIMITS[server]
    assert excess(message) == Excess(room)


@pytest.mark.parametrize("server", PROMPTS)
def test_prompt_error_is_not_about_the_limit(server):
    assert excess(PROMPTS[server]) is None


@BOTH
@pytest.mark.parametrize("api", APIS)
async def test_limit_that_does_not_fit_is_replaced_by_the_one_that_the_error_leaves(api, streamed):
    async with gateway(refusal(VLLM), APIS[api][3 + streamed]) as site:
        answer = await ask(site, api, streamed=streamed)
        assert (answer.status_code, limits_of(site)) == (200, [9000, 7692])
        assert f"translated:{APIS[api][2]}" in answer.headers["x-gateway-warnings"]


@BOTH
@pytest.mark.parametrize("api", APIS)
async def test_limit_is_left_out_if_the_error_does_not_name_what_fits(api, streamed):
    async with gateway(refusal(LIMITS["any: no number"][0], 422), APIS[api][3 + streamed]) as site:
        answer = await ask(site, api, streamed=streamed)
        assert (answer.status_code, limits_of(site)) == (200, [9000, None])
        assert f"translated:{APIS[api][2]}" in answer.headers["x-gateway-warnings"]


@pytest.mark.parametrize("server", LIMITS)
async def test_limit_is_replaced_after_the_error_of_each_server(server):
    message, room = LIMITS[server]
    async with gateway(refusal(message), whole(completion_body())) as site:
        assert (await ask(site, "chat")).status_code == 200
        assert limits_of(site) == [9000, room]


@BOTH
async def test_limit_is_replaced_after_an_error_within_a_stream(streamed):
    late = stream(frame(error={"message": VLLM, "code": 400}))
    async with gateway(late, HELLO if streamed else whole(completion_body())) as site:
        answer = await ask(site, "chat", streamed=streamed)
        assert (answer.status_code, limits_of(site)) == (200, [9000, 7692])
        assert "error" not in answer.text


async def test_limit_is_left_out_after_a_second_error_of_a_server_that_counts_only_the_beginning():
    again = BEGINNING.replace("193", "194").replace("8000", "7999")
    async with gateway(refusal(BEGINNING), refusal(again), whole(completion_body())) as site:
        assert (await ask(site, "chat", limit=8000)).status_code == 200
        assert limits_of(site) == [8000, 7999, None]


async def test_limit_of_the_backend_itself_is_replaced_by_one_that_fits():
    async with gateway(refusal(VLLM), whole(completion_body())) as site:
        assert (await ask(site, "chat", limit=None)).status_code == 200
        assert limits_of(site) == [None, 7692]


@pytest.mark.parametrize("api", APIS)
async def test_limit_that_never_fits_is_an_error_about_the_limit(api):
    async with gateway(refusal(VLLM)) as site:
        answer = await ask(site, api)
        assert problem(answer) == (400, BAD, None, APIS[api][2])
        assert limits_of(site) == [9000, 7692, None]


@pytest.mark.parametrize("param", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("api", APIS)
async def test_error_about_the_limit_has_its_name_in_the_request(api, param):
    async with gateway(whole({"error": {"message": "No.", "param": param}}, 400)) as site:
        assert problem(await ask(site, api)) == (400, BAD, None, APIS[api][2])


@pytest.mark.parametrize(("api", "param"), [("chat", "messages"), ("completions", "prompt"), ("responses", "input")])
async def test_prompt_that_is_too_long_is_an_error_about_the_prompt(api, param):
    async with gateway(refusal(PROMPTS["vllm: passed"])) as site:
        assert problem(await ask(site, api)) == (400, BAD, "context_length_exceeded", param)
        assert limits_of(site) == [9000]


@pytest.mark.parametrize("server", PROMPTS)
async def test_prompt_that_is_too_long_is_found_after_the_limit_was_left_out(server):
    async with gateway(refusal(LIMITS["vllm: engine"][0]), refusal(PROMPTS[server])) as site:
        assert problem(await ask(site, "chat")) == (400, BAD, "context_length_exceeded", "messages")
        assert limits_of(site) == [9000, None]


async def test_prompt_that_is_too_long_is_shortened_beside_the_new_limit():
    history = [{"role": ("user", "assistant")[i % 2], "content": f"{i}"} for i in range(5)]
    async with gateway(refusal(VLLM), refusal(PROMPTS["sglang"]), whole(completion_body())) as site:
        answer = await ask(site, "responses", input=history, truncation="auto")
        assert limits_of(site) == [9000, 7692, 7692]
        assert [len(post.json["messages"]) for post in site.upstream.posts] == [5, 5, 4]
        assert answer.headers["x-gateway-warnings"] == "translated:max_output_tokens, truncated:input"


@BOTH
async def test_limit_is_replaced_at_the_same_backend(streamed):
    good = HELLO if streamed else whole(completion_body())
    async with fleet([refusal(VLLM), good], [good], model={"retries": 0}) as site:
        assert (await ask(site, "chat", streamed=streamed)).status_code == 200
        assert (site.posts(), circuit_state(site)) == ([2, 0], "closed")


async def test_limit_of_each_choice_is_replaced_if_the_backend_gives_one_at_a_time():
    async with gateway(refusal(VLLM), refusal(VLLM), whole(completion_body()), backend={"kind": "lmstudio"}) as site:
        answer = await ask(site, "chat", n=2)
        assert len(answer.json()["choices"]) == 2
        assert limits_of(site)[-2:] == [7692, 7692]


# Before the request


def listing(window):
    return whole({"object": "list", "data": [{"id": "m", "object": "model", "max_model_len": window}]})


@BOTH
@pytest.mark.parametrize("api", APIS)
async def test_limit_is_cut_to_the_window_if_the_backend_has_listed_it(api, streamed):
    async with gateway(APIS[api][3 + streamed]) as site:
        site.upstream.answer_lists_with(listing(4096))
        await site.app.state.directory.backends["up"].models()
        answer = await ask(site, api, streamed=streamed)
        (limit,) = limits_of(site)
        assert 4050 < limit < 4096
        assert f"translated:{APIS[api][2]}" in answer.headers["x-gateway-warnings"]


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_limit_is_cut_to_the_window_that_the_backend_has_told(kind):
    async with gateway(whole(completion_body()), models=["m"], backend={"kind": kind}) as site:
        site.upstream.answer_lists_with(listing(4096))
        assert (await site.client.get("/v1/models/m")).json()["context_length"] == 4096
        await ask(site, "chat", limit=4095)
        (limit,) = limits_of(site)
        assert 4050 < limit < 4095


@pytest.mark.parametrize(
    ("limit", "prompt", "sent"), [(3000, 9, 3000), (3500, 900, 3500), (3500, 9000, 3072), (9000, 9000, 3072)]
)
async def test_limit_leaves_at_most_a_quarter_of_the_window_to_an_estimated_prompt(limit, prompt, sent):
    async with gateway(whole(completion_body())) as site:
        site.upstream.answer_lists_with(listing(4096))
        await site.app.state.directory.backends["up"].models()
        answer = await ask(site, "chat", limit=limit, messages=[{"role": "user", "content": "x" * prompt}])
        assert limits_of(site) == [sent]
        assert answer.headers.get("x-gateway-warnings") == (None if sent == limit else "translated:max_tokens")


async def test_limit_that_was_cut_to_the_window_is_cut_again_after_an_error():
    async with gateway(refusal(VLLM.replace("8192", "4096")), whole(completion_body())) as site:
        site.upstream.answer_lists_with(listing(4096))
        await site.app.state.directory.backends["up"].models()
        answer = await ask(site, "chat", streamed=False)
        assert limits_of(site)[1] == 3596
        assert answer.headers["x-gateway-warnings"] == "translated:max_tokens"


async def test_limit_error_within_a_response_is_passed_on():
    async with gateway(stream(*HELLO[1:2], frame(error={"message": VLLM, "code": 400}))) as site:
        answer = await ask(site, "chat", streamed=True)
        assert payloads(answer.text)[-1]["error"]["param"] == "max_tokens"
        assert limits_of(site) == [9000]
