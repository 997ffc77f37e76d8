"""The playground, as people use it."""

import json

import pytest
from playwright.async_api import expect

from browser.chromium import chromium, page_of
from browser.overview import EVIL, KEYS, ON, focused, url_of
from support.app import listening
from support.upstream import HANG, HELLO, call, chunk, frame, head, stream, whole

TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
USAGE = frame(choices=[], usage={"prompt_tokens": 40, "completion_tokens": 24, "total_tokens": 64})
CALLS = stream(
    chunk(reasoning_content="They want the weather."),
    chunk(tool_calls=call("get_weather", '{"city": "Oslo"}', id="call_1")),
    chunk(finish="tool_calls"),
    USAGE,
)
SUNNY = stream(chunk("It is"), chunk(" sunny."), chunk(finish="stop"), USAGE)


async def say(page, text):
    await page.locator("#message").fill(text)
    await page.keyboard.press("Control+Enter")


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_a_tool_call_is_answered_by_the_reader(api, streamed):
    async with chromium() as browser, listening(CALLS, SUNNY, **ON) as site, page_of(browser) as page:
        await page.goto(f"{url_of(site)}/playground")
        await expect(page.get_by_label("Model")).to_have_value("m")
        await page.get_by_label("API", exact=True).select_option(api)
        await page.get_by_label("System prompt").fill("Be short.")
        await page.get_by_label("Tools").fill(json.dumps([TOOL]))
        await page.get_by_label("Output tokens").fill("100")
        await page.get_by_label("Stream", exact=True).set_checked(streamed)
        await say(page, "How is the weather in Oslo?")
        shown = page.get_by_label("Tool call get_weather")
        await shown.get_by_text('"city": "Oslo"').wait_for()
        await page.locator("#talk").get_by_text("They want the weather.").wait_for()
        await page.get_by_label("Result of get_weather").fill("sunny")
        await page.get_by_role("button", name="Send result").click()
        await page.locator("#talk").get_by_text("It is sunny.").wait_for()
        await page.locator("#talk").get_by_text("40 + 24 tokens").last.wait_for()
        assert "HTTP 200" in await page.locator("#raw").inner_text()
        messages = site.upstream_body["messages"]
        assert [one["role"] for one in messages] == ["system", "user", "assistant", "tool"]
        assert json.loads(messages[2]["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
        assert messages[3]["content"] == "sunny" and site.upstream_body["tools"][0]["function"]["name"] == "get_weather"
        assert page.complaints == []


async def test_a_conversation_survives_a_reload_and_links_to_the_inspector():
    async with chromium() as browser, listening(HELLO, **ON) as site, page_of(browser) as page:
        await page.goto(f"{url_of(site)}/playground")
        await expect(page.get_by_label("Model")).to_have_value("m")
        await page.get_by_label("System prompt").fill("Be short.")
        await say(page, "Hello?")
        await page.get_by_role("link", name="Inspect", exact=True).wait_for()
        await page.reload()
        await page.locator("#talk").get_by_text("Hello?").wait_for()
        assert await page.get_by_label("System prompt").input_value() == "Be short."
        await page.get_by_role("button", name="New conversation").click()
        await page.get_by_text("No message yet").wait_for()
        assert await focused(page) == "message"


async def test_faults_are_said_where_they_are():
    async with chromium() as browser, listening(whole("no", 500), **ON) as site, page_of(browser) as page:
        await page.goto(f"{url_of(site)}/playground")
        await expect(page.get_by_label("Model")).to_have_value("m")
        await page.get_by_label("Tools").fill("{")
        await say(page, "Hello?")
        await page.get_by_role("alert").get_by_text("Tools must be a JSON array.").wait_for()
        assert await focused(page) == "tools" and await page.locator("#message").input_value() == "Hello?"
        await page.get_by_label("Tools").fill("")
        await page.get_by_role("button", name="Send").click()
        await page.locator("#talk .failed").wait_for()
        assert "HTTP 502" in await page.locator("#raw").inner_text()


async def test_a_response_is_stopped():
    async with chromium() as browser, listening([head(), chunk("Once"), HANG], **ON) as site, page_of(browser) as page:
        await page.goto(f"{url_of(site)}/playground")
        await expect(page.get_by_label("Model")).to_have_value("m")
        await say(page, "Tell me a story.")
        await page.locator("#talk").get_by_text("Once").wait_for()
        await page.get_by_role("button", name="Stop").click()
        await page.get_by_text("You stopped the request.").wait_for()
        assert "Once" in await page.locator("#raw").inner_text()


async def test_a_key_is_asked_for():
    async with chromium() as browser, listening(HELLO, auth={"keys": KEYS}) as site, page_of(browser) as page:
        await page.goto(f"{url_of(site)}/playground")
        await page.get_by_text("This page sends requests.").wait_for()
        for key, shown in (("no-key", "Incorrect API key"), ("ann-key", "No message yet")):
            await page.get_by_label("API key", exact=True).fill(key)
            await page.keyboard.press("Enter")
            await page.get_by_text(shown).wait_for()
        await say(page, "Hello?")
        await page.get_by_text("duration").wait_for()
        await page.get_by_role("tab", name="curl").click()
        text = await page.locator("#code-curl").inner_text()
        assert "$GATEWAY_KEY" in text and "ann-key" not in text


async def test_no_words_are_run():
    script = stream(chunk(EVIL), chunk(tool_calls=call(EVIL, json.dumps({"a": EVIL}), id=EVIL)), chunk(finish="stop"))
    async with chromium() as browser, listening(script, **ON) as site, page_of(browser) as page:
        await page.goto(f"{url_of(site)}/playground")
        await expect(page.get_by_label("Model")).to_have_value("m")
        await say(page, EVIL)
        await page.get_by_text("duration").wait_for()
        assert await page.locator("main img, main script, main svg:not(.icon)").count() == 0
        assert page.complaints == []
