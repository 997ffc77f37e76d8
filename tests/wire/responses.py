"""Text through /v1/responses: limits, forms, and what is stored."""

import json

from wire.case import WHOLE, respond
from wire.chat import OF_FRANCE

CAPITAL = "What is the capital of France?"
# Members of a chat that llama.cpp and Ollama send, and for which the Responses API has no place.
WITHOUT_PLACE = {
    f"dropped:{name}"
    for name in (
        "system_fingerprint", "timings", "total_duration", "load_duration", "prompt_eval_duration", "eval_duration",
    )
}  # fmt: skip


@respond(CAPITAL)
def a_response_is_a_message(response):
    assert response.meant == (OF_FRANCE, "", [], "stop") and {*response.warnings} <= WITHOUT_PLACE
    assert [item["type"] for item in response.body["output"]] == ["message"]


@respond([{"role": "user", "content": [{"type": "input_text", "text": CAPITAL}]}])
def input_may_be_parts(response):
    assert response.content == OF_FRANCE


@respond(CAPITAL, instructions="Answer in one word.")
def instructions_are_the_system_message(response):
    system = {"role": "system", "content": "Answer in one word."}
    assert (
        response.again(instructions=None, input=[system, {"role": "user", "content": CAPITAL}]).meant == response.meant
    )


@respond("Tell me a story.", max_output_tokens=16)
def a_limit_makes_it_incomplete(response):
    assert response.body["status"] == "incomplete" and response.finish == "length" and response.content


@respond(CAPITAL, max_output_tokens=8, max_tool_calls=None)
def a_limit_may_not_be_too_small(response):
    assert (response.status, response.problem["param"]) == (400, "max_output_tokens")


@respond(CAPITAL, ways=(WHOLE,))
def a_response_is_counted(response):
    usage = response.usage
    assert usage["input_tokens"] > 10 and usage["output_tokens"] >= 7
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


@respond(CAPITAL, store=True)
def a_response_goes_on_from_the_one_before(response):
    after = response.again(previous_response_id=response.body["id"], input="And of Italy?")
    assert "Rome" in after.content and after.body["previous_response_id"] == response.body["id"]
    assert response.gate.get(f"/v1/responses/{response.body['id']}")["output"] == response.body["output"]


@respond(CAPITAL, previous_response_id="resp_missing")
def a_response_that_is_not_there_cannot_be_gone_on_from(response):
    assert (response.status, response.problem["code"]) == (400, "previous_response_not_found")


@respond(
    "A JSON object with n=7, please.",
    text={
        "format": {
            "type": "json_schema",
            "name": "n",
            "schema": {
                "type": "object",
                "properties": {"n": {"const": 7}},
                "required": ["n"],
                "additionalProperties": False,
            },
        }
    },
    needs=("json_schema",),
)
def a_response_follows_its_schema(response):
    assert json.loads(response.content) == {"n": 7}


@respond(CAPITAL, metadata={"a": "b"}, user="u")
def a_response_repeats_the_request(response):
    assert (response.body["metadata"], response.body["model"], response.body["store"]) == ({"a": "b"}, "m", False)


@respond(CAPITAL, top_logprobs=1, include=["message.output_text.logprobs"], needs=("logprobs",))
def chances_of_a_response(response):
    (part,) = response.body["output"][0]["content"]
    assert "".join(token["token"] for token in part["logprobs"]).startswith(OF_FRANCE)
