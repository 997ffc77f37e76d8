"""What there is besides: models, tokens, completions of a text, embeddings."""

from wire.case import STREAMED, WHOLE, get, post

PROMPT = "The capital of France is"


@get("/v1/models")
def the_models_are_listed(said):
    assert said.body["object"] == "list" and [model["id"] for model in said.body["data"]] == ["m"]


@get("/v1/models/m", needs=("window",))
def a_model_says_how_much_it_takes(said):
    assert (said.body["id"], said.body["object"]) == ("m", "model")
    assert said.body["context_length"] == said.gate.server.window


@get("/ready")
def it_is_ready(said):
    assert said.status == 200


@post("/v1/tokenize", prompt=PROMPT, needs=("tokens",))
def tokens_there_and_back(said):
    assert said.body["count"] == len(said.body["tokens"]) == 5
    back = said.gate.ask(said.question._replace(path="/v1/detokenize").but(prompt=None, tokens=said.body["tokens"]))
    assert back.body == {"prompt": PROMPT}


@post("/v1/responses/input_tokens", input="What is the capital of France?")
def the_tokens_of_an_input(said):
    answer = said.gate.ask(said.question._replace(path="/v1/responses").but(max_output_tokens=16, store=False))
    assert said.body["object"] == "response.input_tokens"
    counted = said.body["input_tokens"] == answer.usage["input_tokens"]
    assert counted or "estimated:input_tokens" in said.warnings


@post("/v1/completions", prompt=PROMPT, max_tokens=5, temperature=0, needs=("completions",), ways=(WHOLE, STREAMED))
def a_text_is_completed(said):
    (choice,) = said.body["choices"]
    assert choice["text"] and choice["finish_reason"] == "length"
    assert (said.body["object"], said.body["model"]) == ("text_completion", "m")


@post("/v1/completions", prompt=PROMPT, stop=".", temperature=0, needs=("completions",), ways=(WHOLE, STREAMED))
def a_text_ends_before_its_stop_sequence(said):
    (choice,) = said.body["choices"]
    assert "Paris" in choice["text"] and "." not in choice["text"] and choice["finish_reason"] == "stop"


@post("/v1/embeddings", input=PROMPT, needs=("embeddings",))
def a_text_has_a_vector(said):
    assert len(said.body["data"][0]["embedding"]) > 100


@post("/v1/rerank", query="capital", documents=["Paris", "potato"], needs=("ranks",))
def texts_have_ranks(said):
    assert {one["index"] for one in said.body["results"]} == {0, 1}
