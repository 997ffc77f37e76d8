"""langchain-tests: LangChain's own suite for chat models, run on ChatOpenAI over both models.

What a test asks for is asked behind two or three worked examples of it, as the small model knows only then what is
meant; the tests see nothing of that.  All of the suite is run, on both models, but for

    test_image_inputs, test_image_tool_message    the model has no eyes, and the image would be fetched from the net
    test_audio_inputs                             nor has it ears; the sound would be fetched
    test_pdf_inputs, test_pdf_tool_message        the file would be fetched
    test_stream_time                              plays back what was recorded
"""

import json
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from os import devnull
from typing import Any

import pytest
from checks import BASE_URL, MODELS, say
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

LEFT_OUT = (
    "test_image_inputs",
    "test_image_tool_message",
    "test_audio_inputs",
    "test_pdf_inputs",
    "test_pdf_tool_message",
    "test_stream_time",
)
LOOP = "loop_scope=session"  # ChatOpenAI keeps its connections, so all tests have one loop
OPTIONS = [
    *("-c", devnull, "--noconftest", "-s", "-p", "no:terminal", "-p", "no:cacheprovider"),
    *("--asyncio-mode=auto", "-o", f"asyncio_default_test_{LOOP}", "-o", f"asyncio_default_fixture_{LOOP}"),
]
JOKES = [
    ("Tell me a joke about pigs.", {"setup": "What do pigs say?", "punchline": "Nothing."}),
    ("Give me the setup to a joke about dogs, no punchline.", {"setup": "What do dogs say?", "punchline": "Nothing."}),
]
LESSONS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "magic_function": [
        ("What is the value of magic_function(5)? Use the tool.", {"input": 5}),
        ("What is the value of magic_function(8)? Use the tool.", {"input": 8}),
        ("Hello!", {"input": 1}),
    ],
    "magic_function_no_args": [("What is the value of magic_function_no_args()? Use the tool.", {})] * 2,
    "greeting_generator": [
        ("Using the tool, generate a Scottish greeting.", {"answer_style": "Scottish"}),
        ("Using the tool, generate a Cowboy greeting.", {"answer_style": "Cowboy"}),
    ],
    "get_weather": [
        ("What is the weather in Boston, MA?", {"location": "Boston, MA"}),
        ("What is the weather in Austin, TX?", {"location": "Austin, TX"}),
        ("Hello!", {"location": "here"}),
    ],
    "unicode_customer": [
        (
            "Create a customer named '北京银行' (Beijing Bank) - a Chinese bank",
            {"customer_name": "北京银行", "description": "a Chinese bank"},
        ),
        (
            "Create a customer named 'さくら' (Cherry) - a Japanese shop",
            {"customer_name": "さくら", "description": "a Japanese shop"},
        ),
    ],
    "Joke": JOKES,
    "JokeDict": JOKES,
}


class Taught(ChatOpenAI):
    """Shows the model how the tools that are offered, or the form that is wanted, have been used before."""

    def _get_request_payload(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        payload = super()._get_request_payload(*args, **kwargs)
        return payload | {"messages": [*lessons(payload), *payload["messages"]]}


def lessons(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in named(payload):
        for number, (question, arguments) in enumerate(LESSONS.get(name, ())):
            call = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
            id = f"call_{name}_{number}"
            yield {"role": "user", "content": question}
            yield {"role": "assistant", "content": "", "tool_calls": [{"id": id, "type": "function", "function": call}]}
            yield {"role": "tool", "tool_call_id": id, "content": "Done."}
            yield {"role": "assistant", "content": "It is done."}
    if "response_format" in payload:
        for question, answer in JOKES:
            yield {"role": "user", "content": question}
            yield {"role": "assistant", "content": json.dumps(answer)}


def named(payload: dict[str, Any]) -> list[str]:
    """The tools that may be called."""
    match payload.get("tool_choice"):
        case {"function": {"name": name}}:
            return [name]
    return [tool["function"]["name"] for tool in payload.get("tools", ())]


class Suite(ChatModelIntegrationTests):
    name: str
    other: str
    chat_model_class = Taught
    supports_json_mode = supports_anthropic_inputs = True

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "base_url": BASE_URL, "api_key": "none", "model": self.name, "temperature": 0, "max_tokens": 60,
            "max_retries": 0, "stream_usage": True,
        }  # fmt: skip

    @property
    def model_override_value(self) -> str:
        return self.other


class TestNative(Suite):
    name, other = MODELS


class TestHermes(Suite):
    other, name = MODELS


class Lines:
    """Prints one line for each test; one that is skipped, though it is not left out, has failed."""

    def __init__(self, model: str) -> None:
        self._client = f"langchain-tests {version('langchain-tests')} · {model}"

    def pytest_collection_modifyitems(self, items: list[pytest.Function]) -> None:
        assert {*LEFT_OUT} <= {item.originalname for item in items}
        items[:] = [item for item in items if item.originalname not in LEFT_OUT]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            say("ok  " if report.passed else "FAIL", f"{self._client} · {report.nodeid.rpartition('::')[2]}")
        if not report.passed:
            say(textwrap.indent(report.longreprtext, "     ").rstrip())


def passes(model: str) -> bool:
    chosen = f"{__file__}::Test{model.capitalize()}"
    return pytest.main([*OPTIONS, chosen], [Lines(model)]) == pytest.ExitCode.OK


if __name__ == "__main__":
    with ProcessPoolExecutor() as each:
        sys.exit(not all(each.map(passes, MODELS)))
