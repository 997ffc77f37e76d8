"""What there is besides: models, tokens, completions of a text, embeddings."""

from wire.case import STREAMED, WHOLE, get, post

PROMPT = "The capital of France is"


@get("/v1/models")
def the_models_are_listed(response):
    assert response.body["object"] == "list" and [model["id"] for model in response.body["data"]] == ["m"]


@get("/v1/models/m", needs=("window",))
def a_model_has_its_context_length(response):
    assert (response.body["id"], response.body["object"]) == ("m", "model")
    assert response.body["context_length"] == response.gate.server.window


@get("/ready")
def it_is_ready(response):
    assert response.status == 200


@post("/v1/tokenize", prompt=PROMPT, needs=("tokens",))
def tokens_there_and_back(response):
    assert response.body["count"] == len(response.body["tokens"]) == 5
    back = response.gate.ask(
        response.question._replace(path="/v1/detokenize").but(prompt=None, tokens=response.body["tokens"])
    )
    assert back.body == {"prompt": PROMPT}


@post("/v1/responses/input_tokens", input="What is the capital of France?")
def the_tokens_of_an_input(response):
    answer = response.gate.ask(response.question._replace(path="/v1/responses").but(max_output_tokens=16, store=False))
    assert response.body["object"] == "response.input_tokens"
    counted = response.body["input_tokens"] == answer.usage["input_tokens"]
    assert counted or "estimated:input_tokens" in response.warnings


@post("/v1/completions", prompt=PROMPT, max_tokens=5, temperature=0, needs=("completions",), ways=(WHOLE, STREAMED))
def a_text_is_completed(response):
    (choice,) = response.body["choices"]
    assert choice["text"] and choice["finish_reason"] == "length"
    assert (response.body["object"], response.body["model"]) == ("text_completion", "m")


@post("/v1/completions", prompt=PROMPT, stop=".", temperature=0, needs=("completions",), ways=(WHOLE, STREAMED))
def a_text_ends_before_its_stop_sequence(response):
    (choice,) = response.body["choices"]
    assert "Paris" in choice["text"] and "." not in choice["text"] and choice["finish_reason"] == "stop"


@post("/v1/embeddings", input=PROMPT, needs=("embeddings",))
def a_text_has_a_vector(response):
    assert len(response.body["data"][0]["embedding"]) > 100


@post("/v1/rerank", query="capital", documents=["Paris", "potato"], needs=("ranks",))
def texts_have_ranks(response):
    assert {one["index"] for one in response.body["results"]} == {0, 1}
