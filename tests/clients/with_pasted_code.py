"""The code of the page of the clients and of README.md: each section is one program, which has to end well and to print something.

The settings of Codex and opencode, which are there as well, are those that their own checks use.  The other programs, and
libraries with a long prompt of their own, are left out.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from checks import BASE_URL, Loop, run
from pages import CLIENTS_PAGE, Block, blocks, pasted
from program import ran

from gateway.launch import CLIENTS

ENVIRONMENTS = Path(sys.argv[1])
PYTHONS = {
    "With an SDK": "openai2",
    "openai-python": "openai2",
    "Agents SDK": "openai_agents",
    "LangChain": "langchain",
    "pydantic-ai": "pydantic_ai",
    "LlamaIndex": "llama_index",
    "instructor": "instructor",
    "Anthropic SDK for Python": "anthropic",
    "LangChain ChatAnthropic": "langchain",
    "pydantic-ai AnthropicModel": "pydantic_ai",
}
LIBRARIES = {one.title for one in CLIENTS.values() if not (one.command or one.prompt_tokens)}
HONEST = 'curl() { command curl --fail-with-body "$@"; }\n'  # it would end well whatever the status is


def command(block: Block, code: str) -> tuple[str, ...]:
    match block.language:
        case "sh":
            return "bash", "-euo", "pipefail", "-c", HONEST + code
        case "js":
            return f"{ENVIRONMENTS}/node/bin/node", "--input-type=module", "-e", code
        case _:
            return f"{ENVIRONMENTS}/{PYTHONS[block.section]}/bin/python", "-c", code


def programs() -> Iterator[tuple[str, Block]]:
    for block in blocks(CLIENTS_PAGE):
        if block.section in LIBRARIES and block.language in ("sh", "python", "js"):
            yield CLIENTS_PAGE, block
    yield from (("README.md", block) for block in blocks("README.md") if block[:2] == ("With an SDK", "python"))


async def tried(page: str, block: Block) -> None:
    code = pasted(page, block.section, block.language, BASE_URL)
    with TemporaryDirectory() as home:
        folder = ENVIRONMENTS / "node" if block.language == "js" else Path(home)  # where Node looks for packages
        environment = {"PATH": os.environ["PATH"], "HOME": home, "GATEWAY_KEY": "none", "OPENAI_API_KEY": "none"}
        status, out, errors = await ran(*command(block, code), folder=folder, environment=environment)
    assert status == 0 and out.strip(), (status, out, errors)


def check(page: str, block: Block) -> Loop:
    async def loop(_: str) -> None:
        await tried(page, block)

    loop.__name__ = f"{page}, {block.section}"
    return loop


if __name__ == "__main__":
    run("code of the documentation", {}, [check(*program) for program in programs()], models=("native",))
