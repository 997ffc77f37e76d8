"""instructor: answers as objects, by a forced call, by a schema and by JSON in words; streamed, in parallel, and asked again.

What a text or a call is, the model knows from the worked examples before the question; that it is one, and that it fits its
schema, is enforced: by the llama.cpp that parses itself, and by a grammar of the gateway's for the one that does not.
"""

import json
from collections.abc import Iterable
from importlib.metadata import version
from typing import Annotated, Any, Literal

import instructor
from checks import BASE_URL, EXTRA, TURNS, Answer, Message, Turn, run
from instructor import Instructor, Mode
from openai import AsyncOpenAI, OpenAI
from pydantic import AfterValidator, BaseModel

OPTIONS: dict[str, Any] = {"base_url": BASE_URL, "api_key": "none", "max_retries": 0}
REQUEST_OPTIONS: dict[str, Any] = {"temperature": 0, "max_tokens": 120, "extra_body": EXTRA, "max_retries": 0}


class get_weather(BaseModel):  # the tool has its name and what is said of it
    """Get the current weather for a city"""

    city: str
    unit: Literal["celsius", "fahrenheit"]


class get_time(BaseModel):
    """Get the current time in a timezone"""

    timezone: str


class Person(BaseModel):
    name: str
    age: int


PEOPLE = {name: Person(name=name, age=age) for name, age in (("Ann", 31), ("Bob", 27), ("Eve", 44))}
EVE = PEOPLE["Eve"]
PAIRS = [("Ann", "Bob"), ("Bob", "Eve"), ("Eve", "Ann")]


def client(mode: Mode) -> Instructor:
    return instructor.from_openai(OpenAI(**OPTIONS), mode=mode)


def facts(*names: str) -> str:
    return " ".join(f"{name} is {PEOPLE[name].age} years old." for name in names)


def taught(*rows: tuple[str, Any], form: str = "{}") -> list[Message]:
    """Facts and what is said of them, the last time not."""
    return [
        {"role": role, "content": text}
        for question, answer in rows
        for role, text in (("user", question), ("assistant", form.format(json.dumps(answer))))
    ][:-1]


ONE = taught(*((facts(name), person.model_dump()) for name, person in PEOPLE.items()))


def create(model: str, turn: Turn) -> Answer:
    result, completion = client(Mode.TOOLS).create_with_completion(
        turn.messages, get_weather, model=model, **REQUEST_OPTIONS
    )
    return answer_of([result], completion)


def create_parallel(model: str, turn: Turn) -> Answer:
    """Its iterator tells nothing of the completion, so a hook does."""
    extractor, completions = client(Mode.PARALLEL_TOOLS), []
    extractor.on("completion:response", completions.append)
    results = [*extractor.create(Iterable[get_weather | get_time], turn.messages, model=model, **REQUEST_OPTIONS)]
    return answer_of(results, completions[0])


def answer_of(results: Iterable[BaseModel], completion: Any) -> Answer:
    calls = [(type(result).__name__, result.model_dump()) for result in results]
    usage, (choice,) = completion.usage, completion.choices
    return Answer(choice.message.content, calls, choice.finish_reason, (usage.prompt_tokens, usage.completion_tokens))


def a_call_is_forced(model: str) -> None:
    """How many tokens it takes is a matter of how it is forced, and not the same on both."""
    for turn in (TURNS["single"], TURNS["think_then_call"]):
        answer = create(model, turn)
        assert (answer.calls, answer.finish) == (turn.calls, "tool_calls") and min(answer.usage) > 5, answer


def a_call_comes_in_parts(model: str) -> None:
    turn = TURNS["single"]
    *before, last = client(Mode.TOOLS).create_partial(get_weather, turn.messages, model=model, **REQUEST_OPTIONS)
    assert [("get_weather", last.model_dump())] == turn.calls, last
    assert any(part.city and not part.unit for part in before), before


def a_response_calls(model: str) -> None:
    """It sends no calls back, only texts, so those before have the model's own form; and a schema beside the call."""
    before = ((facts(name), {"name": "Person", "arguments": person.model_dump()}) for name, person in PEOPLE.items())
    messages = taught(*before, form="<tool_call>\n{}\n</tool_call>")
    found, response = client(Mode.RESPONSES_TOOLS).create_with_completion(
        messages, Person, model=model, **REQUEST_OPTIONS
    )
    assert found.model_dump() == EVE.model_dump(), response
    assert response.status == "completed" and response.usage.output_tokens > 5, response


def a_schema_is_kept(model: str) -> None:
    found = client(Mode.JSON_SCHEMA).create(Person, ONE, model=model, **REQUEST_OPTIONS)
    assert found.model_dump() == EVE.model_dump(), found


def json_is_requested_in_words(model: str) -> None:
    found = client(Mode.JSON).create(Person, ONE, model=model, **REQUEST_OPTIONS)
    assert found.model_dump() == EVE.model_dump(), found


async def json_comes_in_parts(model: str) -> None:
    async with AsyncOpenAI(**OPTIONS) as openai:
        extractor = instructor.from_openai(openai, mode=Mode.JSON_SCHEMA)
        parts = [part async for part in extractor.create_partial(Person, ONE, model=model, **REQUEST_OPTIONS)]
    assert parts[-1] == EVE and any(part.name and part.age is None for part in parts), parts


def several_come_one_after_the_other(model: str) -> None:
    messages = taught(*((facts(*names), {"tasks": [PEOPLE[name].model_dump() for name in names]}) for names in PAIRS))
    found = [*client(Mode.JSON_SCHEMA).create_iterable(messages, Person, model=model, **REQUEST_OPTIONS)]
    assert found == [PEOPLE[name] for name in PAIRS[-1]], found


def what_is_wrong_is_retried(model: str) -> None:
    """The first answer is refused whatever it is, and goes back to the model with the reason."""
    refused: list[int] = []

    def grown(age: int) -> int:
        if not refused:
            refused.append(age)
            raise ValueError("say it again")
        return age

    class Checked(Person):
        age: Annotated[int, AfterValidator(grown)]

    extractor, completions = client(Mode.JSON_SCHEMA), []
    extractor.on("completion:response", completions.append)
    found = extractor.create(Checked, ONE, model=model, **REQUEST_OPTIONS | {"max_retries": 1})
    assert found.model_dump() == EVE.model_dump() and refused == [EVE.age] and len(completions) == 2, completions


if __name__ == "__main__":
    run(
        f"instructor {version('instructor')}",
        {create_parallel: ("parallel",)},
        [
            a_call_is_forced,
            a_call_comes_in_parts,
            a_response_calls,
            a_schema_is_kept,
            json_is_requested_in_words,
            json_comes_in_parts,
            several_come_one_after_the_other,
            what_is_wrong_is_retried,
        ],
    )
