"""Test failures of search services and web pages: the item fails, and the model continues."""

import asyncio
import gzip
import json
import os
import runpy
import socket
import sys
from io import BytesIO

import pytest

from gateway import config
from gateway.server.fetch.pdf_reader import Pdfs
from gateway.server.tools import html_reader, search_tools
from gateway.server.tools.search_tools import WebPageFetcher
from gateway.server.tools.tool_server import ToolServerError
from support.app import gateway, listening
from support.jobs import ended
from support.mcp_requests import calling
from support.memory import census, watched
from support.responses_events import checked, checked_whole
from support.search_services import HERE, OSLO, answer, endless, never, respond_with, searching
from support.upstream import HELLO
from support.wait import until
from support.web_search import ASK, SEARCH, asking, opening, tool_results


async def call_and_tool_output(site):
    """Return the search call's item and the last tool output."""
    response = checked_whole((await site.respond(tools=[SEARCH])).content)
    assert [item["type"] for item in response["output"]] == ["web_search_call", "message"]
    assert response["status"] == "completed"
    return response["output"][0], tool_results(site)[-1]


async def json_bomb(send, *_):
    await answer(send, gzip.compress(b'{"results": []}' + b" " * (64 << 20)), content_encoding="gzip")


SERVICES = {
    "an error": (respond_with({"error": "no"}, 500), "returned HTTP 500"),
    "a limit": (respond_with({}, 429), "returned HTTP 429"),
    "a key that is wrong": (respond_with({}, 401), "returned HTTP 401"),
    "a page": (respond_with(b"<html>"), "did not return JSON"),
    "no text": (respond_with(b"\xff\xfe\x00"), "did not return JSON"),
    "too deep": (respond_with(b"[" * 100_000), "did not return JSON"),
    "too much": (respond_with(b" " * (9 << 20)), "is larger than 8388608 bytes"),
    "a bomb": (json_bomb, "did not return JSON"),
    "elsewhere": (respond_with(b"", 302, location="http://169.254.169.254/"), "returned HTTP 302"),
}


@pytest.mark.parametrize("name", SERVICES)
async def test_web_search_service_with_a_bad_answer_fails_the_call(name):
    http_response, wanted = SERVICES[name]
    async with searching(search=http_response) as web, gateway(calling(ASK), HELLO, tools=web.tools()) as site:
        made, why = await call_and_tool_output(site)
        assert (made["status"], made["action"]["query"]) == ("failed", "capitals") and wanted in why
        assert web.url not in why


async def test_web_search_service_that_is_down_fails_the_call():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # not listening: connections are refused
        tools = {"web_search": {"service": "searxng", "url": f"http://127.0.0.1:{bound.getsockname()[1]}"}}
        async with gateway(calling(ASK), HELLO, tools=tools) as site:
            made, why = await call_and_tool_output(site)
            assert made["status"] == "failed" and why == "The search service cannot be reached."


async def test_web_search_timeout_fails_the_call():
    async with (
        searching(search=never) as web,
        gateway(calling(ASK), HELLO, tools={**web.tools(), "seconds": 0.5}) as site,
    ):
        made, why = await call_and_tool_output(site)
        assert made["status"] == "failed" and "within 0.5 s" in why
        await until(web.broken.is_set)


async def test_web_search_results_that_are_too_long_are_cut():
    much = {"results": [{**OSLO, "url": f"https://a.example/{i}", "content": "x" * 9000} for i in range(99)]}
    async with (
        searching(search=much) as web,
        gateway(calling(ASK), HELLO, tools={**web.tools(), "result_bytes": 2000}) as site,
    ):
        answer = await site.respond(tools=[SEARCH], stream=True)
        checked(answer.content)
        assert len(tool_results(site)[0]) < 2100 and "truncated:web_search_call.results" in answer.text
        assert tool_results(site)[0].count("</untrusted>") == 2  # one in the note, one at the end of the fence


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_disconnect_cancels_the_web_search(streamed):
    async with searching(search=never) as web, listening(calling(ASK), tools={**web.tools(), "seconds": 600}) as site:
        asking = asyncio.create_task(site.respond(tools=[SEARCH], stream=streamed))
        await web.begun.wait()
        asking.cancel()
        await until(web.broken.is_set)
        assert len(site.upstream.posts) == 1


async def test_job_runs_web_search_in_the_background():
    async with searching() as web, gateway(calling(ASK), HELLO, tools=web.tools()) as site:
        accepted = (await site.respond(tools=[SEARCH], background=True)).json()
        response = await ended(site, accepted["id"])
        assert [item["type"] for item in response["output"]] == ["web_search_call", "message"]


# Pages


async def page_bomb(send, *_):
    await answer(send, gzip.compress(b"<p>x</p>" * (8 << 20)), content_encoding="gzip")


PAGES = {
    "not there": (respond_with(b"no", 404), "could not be fetched"),
    "endless": (endless, "is larger than"),
    "a bomb": (page_bomb, "no readable text"),
    "nothing": (respond_with(b""), "no readable text"),
    "no text": (respond_with(b"\x00\x01\x02"), "no readable text"),
    "scripts alone": (respond_with(b"<script>x</script>"), "no readable text"),
    "moved to a secret": (
        respond_with(b"", 302, location="http://169.254.169.254/latest/meta-data"),
        "could not be fetched",
    ),
    "moved to itself": (respond_with(b"", 302, location="/page"), "could not be fetched"),
    "moved to a file": (respond_with(b"", 302, location="file:///etc/passwd"), "could not be fetched"),
}


@pytest.mark.parametrize("name", PAGES)
async def test_web_page_that_cannot_be_read_fails_the_call(name):
    http_response, wanted = PAGES[name]
    async with searching(page=http_response) as web, gateway(calling(opening(web)), HELLO, tools=web.tools()) as site:
        response = checked_whole((await site.respond(input=asking(web), tools=[SEARCH])).content)
        assert response["output"][0]["status"] == "failed" and wanted in tool_results(site)[0]
        assert response["output"][0]["action"] == {"type": "open_page", "url": f"{web.url}/page"}


async def test_web_page_timeout_is_an_error():
    soon = config.FetchSettings(networks=(HERE,)).model_copy(update={"seconds": 0.5})
    async with searching(page=never) as web:
        with pytest.raises(ToolServerError, match="could not be fetched"):
            await WebPageFetcher(soon, Pdfs()).fetch_page(f"{web.url}/page")
        await until(web.broken.is_set)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:{port}/page", "http://localhost:{port}/page", "http://[::1]:{port}/", "http://169.254.169.254/"],
)
async def test_web_page_in_the_private_network_is_not_fetched(url):
    async with searching() as web:
        there = url.format(port=web.url.rpartition(":")[2])
        tools = web.tools()
        tools["web_search"]["pages"] = {"fetch": True}
        call = ("web_search__open_page", {"url": there})
        async with gateway(calling(call), HELLO, tools=tools) as site:
            await site.respond(input=there, tools=[SEARCH])
            assert tool_results(site) == ["The page could not be fetched."] and web.requests == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "javascript:1", "https://a.example/\u202ex", "http://[x/"])
async def test_web_page_with_an_invalid_url_is_not_opened(url):
    with pytest.raises(ToolServerError, match="not the address"):
        await WebPageFetcher(config.FetchSettings(), Pdfs()).fetch_page(url)


async def test_web_page_of_another_type_is_read():
    async def latin(send, *_):
        await answer(send, "Blåbær".encode("latin-1"), content_type="text/plain; charset=iso-8859-1")

    async with searching(a=respond_with({"a": "b"}), b=latin) as web:
        there = WebPageFetcher(config.FetchSettings(networks=(HERE,)), Pdfs())
        assert (await there.fetch_page(f"{web.url}/a")).text == '{"a": "b"}'
        assert (await there.fetch_page(f"{web.url}/b")).text == "Blåbær"


async def test_web_page_reader_ends_with_its_caller_and_gets_no_secrets(monkeypatch, tmp_path):
    """The environment of the reader has no variables of the gateway."""
    program, pipe = tmp_path / "reading.py", tmp_path / "pipe"
    os.mkfifo(pipe)
    program.write_text(
        "import json, os, signal, sys\n"
        f"with open({str(pipe)!r}, 'w') as pipe: json.dump([os.getpid(), dict(os.environ)], pipe)\n"
        "sys.stdin.read()\n"
        "signal.pause()\n"
    )
    monkeypatch.setattr("gateway.server.tools.search_tools._PROGRAM", str(program))
    monkeypatch.setenv("GATEWAY_KEY", "s3cret")
    async with searching() as web:
        reading = asyncio.create_task(
            WebPageFetcher(config.FetchSettings(networks=(HERE,)), Pdfs()).fetch_page(f"{web.url}/page")
        )
        pid, known = json.loads(await asyncio.to_thread(pipe.read_text))
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert "GATEWAY_KEY" not in known
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_web_page_reader_program_prints_the_text(monkeypatch, capfdbinary):
    class Standard:
        buffer = BytesIO(b"<TITLE lang=en> A &lt;b&gt;\n c </title><p>Text, <a href='d'>a link</a>.")

    monkeypatch.setattr(sys, "stdin", Standard)
    monkeypatch.setattr(sys, "argv", ["reading.py", "https://a.example/b/c"])
    runpy.run_path(search_tools._PROGRAM, run_name="__main__")
    sys.stdout.flush()
    assert capfdbinary.readouterr().out.strip() == b"A <b> c\nText, [a link](https://a.example/b/d)."
    assert html_reader.html_to_markdown("Text.", "https://a.example/").strip() == "Text."


# Memory


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_web_search_response_leaves_no_garbage(streamed):
    names = ("gateway.builtin_tools", "gateway.pipeline.pipeline", "gateway.server.tools")
    async with searching() as web, gateway(*[calling(ASK), HELLO] * 3, tools=web.tools()) as site:
        await site.respond(stream=streamed, tools=[SEARCH])
        kept = census()
        with watched():
            for _ in range(2):
                assert (await site.respond(stream=streamed, tools=[SEARCH])).status_code == 200
            assert [name for name in census() if name.startswith(names) and name not in kept] == []
