"""Run the programs of examples/ against a gateway in front of a scripted backend."""

import asyncio
import json
import os
import re
import shlex
import sys

import pytest

from support.app import listening
from support.paths import ROOT
from support.sdk_cases import letters
from support.upstream import HELLO, completion_body, whole

EXAMPLES = ROOT / "examples"
ADDRESS = "http://127.0.0.1:8900"


def calling(name, /, **arguments):
    """Return the text of a model that calls a tool."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


WEATHER = letters("I look." + calling("get_weather", city="Oslo"))
PROGRAMS = {
    "chat_with_tools.py": ([WEATHER], 'I look.\nget_weather {"city": "Oslo"}\n9 tokens\n'),
    "responses.py": ([whole(completion_body("Bergen.")), letters("Malaga.")], "Bergen.\nMalaga.\n9 tokens\n"),
    "messages.py": ([WEATHER], "I look.get_weather {'city': 'Oslo'}\ntool_use, 2 tokens\n"),
    "agent.py": (
        [
            whole(completion_body(calling("list_notes"))),
            whole(completion_body(calling("read_note", name="friday.txt"))),
            whole(completion_body("Call Ada at ten.")),
        ],
        'list_notes {}\nread_note {"name": "friday.txt"}\nCall Ada at ten.\n',
    ),
}


def commands(url):
    """Return the words of each command of curl.sh, for another address."""
    text = (EXAMPLES / "curl.sh").read_text("utf-8").replace(ADDRESS, url).replace("\\\n", "")
    return [shlex.split(line) for line in text.splitlines() if line.startswith("curl ")]


def test_example_exists_for_each_line_of_the_list():
    listed = re.findall(r"^\| \[([\w.]+)\]\(\1\)", (EXAMPLES / "README.md").read_text("utf-8"), re.M)
    programs = {file.name for file in EXAMPLES.iterdir() if file.is_file()} - {"README.md"}
    assert {*listed} == programs == {*PROGRAMS, "curl.sh"}


@pytest.mark.parametrize("name", [*PROGRAMS, "curl.sh"])
def test_example_is_short_and_has_the_usual_address(name):
    text = (EXAMPLES / name).read_text("utf-8")
    assert len(text.splitlines()) <= 40 and ADDRESS in text


@pytest.mark.parametrize("name", PROGRAMS)
async def test_example_prints_what_the_model_answers(name):
    scripts, printed = PROGRAMS[name]
    pipe = asyncio.subprocess.PIPE
    async with listening(*scripts) as site:
        url = str(site.client.base_url).rstrip("/")
        where = {"PATH": os.environ["PATH"], "OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url, "NO_PROXY": "*"}
        child = await asyncio.create_subprocess_exec(
            sys.executable, EXAMPLES / name, "m", env=where, stdout=pipe, stderr=pipe
        )
        out, errors = await child.communicate()
        assert (child.returncode, out.decode()) == (0, printed), errors.decode()
        assert len(site.upstream.posts) == len(scripts)


async def test_example_of_curl_gets_an_answer_from_each_api():
    async with listening(HELLO, models=["smollm2"], model=False) as site:
        for _, options, url, *more in commands(str(site.client.base_url).rstrip("/")):
            assert options in ("-s", "-sN")
            given = dict(zip(more[::2], more[1::2], strict=True))
            headers = dict([given["-H"].split(": ")]) if given else {}
            answer = await site.client.request(
                "POST" if given else "GET", url, content=given.get("-d"), headers=headers
            )
            assert answer.status_code == 200 and ("Hi" if given else "smollm2") in answer.text
        assert len(site.upstream.posts) == 3
