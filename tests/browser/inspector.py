"""The inspector, as people use it."""

import asyncio
import json
from pathlib import Path

import pytest
from playwright.async_api import expect

from browser.chromium import DESKTOP, PHONE, chromium, page_of, picture
from browser.overview import CONTRASTS, EVE, EVIL, KEYS, ON, channels, focused, until_shown, url_of
from gateway.recording import UpstreamDataEntry, parse_recording
from support.app import listening
from support.upstream import HELLO, call, chunk, frame, head, stream, whole
from support.wait import until

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
USAGE = frame(choices=[], usage={"prompt_tokens": 40, "completion_tokens": 24, "total_tokens": 64})
WEATHER = [
    *(chunk(text) for text in ("<think>", "They want", " to know", " the weather.", "</think>", "Let me look.\n")),
    *(chunk(text) for text in ("<tool_", 'call>\n{"name": "get_weather", ', '"arguments": {"city"', ': "Oslo", "days', '": 3}', "}\n</tool_call>")),
    chunk(finish="stop"),
    USAGE,
]  # fmt: skip
HERMES = {"model": {"backends": ["up"], "format": "hermes_json"}}


async def ask(site, id, **more):
    return await site.chat(headers={"x-request-id": id}, stream=True, **more)


def reads(recording):
    recording.settle()
    return len([one for one in recording.entries if isinstance(one, UpstreamDataEntry)])


class Weather:
    """An answer of which each frame is read by itself."""

    def __init__(self):
        self.gates = [asyncio.Event() for _ in WEATHER]
        self.script = stream(*(step for pair in zip(WEATHER, self.gates, strict=True) for step in pair))

    async def ask(self, site, id, **more):
        asking = asyncio.create_task(ask(site, id, tools=TOOLS, **more))
        recent = site.app.state.telemetry.recorder.recent
        for place, gate in enumerate(self.gates):
            await until(lambda place=place: recent and reads(recent[-1]) > place)
            gate.set()
        await asking


async def open_one(page, site, id):
    await page.goto(f"{url_of(site)}/inspector?id={id}")
    await page.locator("#which", has_text=id).wait_for()
    await page.get_by_role("status").get_by_text("complete").wait_for()


async def show_stream(page):
    """Go to the stream, whose steps are fetched when it is seen."""
    await page.locator("#stream").scroll_into_view_if_needed()
    await page.locator("#stream[aria-busy=false]").wait_for()


def row(page, column, text):
    return page.locator(f"#{column} .row", has_text=text).first


async def linked(page, column):
    return await page.locator(f"#{column} .row.linked").all_inner_texts()


# The list, and one that goes on


async def test_a_live_stream_is_watched_from_its_first_chunk_to_its_last():
    go, on = asyncio.Event(), asyncio.Event()
    script = [
        head(),
        chunk("First"),
        go,
        chunk(" middle"),
        on,
        chunk(" last"),
        chunk(finish="stop"),
        USAGE,
        *stream()[1:],
    ]
    async with chromium() as browser, listening(script, **ON) as site, page_of(browser) as page:
        await page.goto(f"{url_of(site)}/inspector")
        await until_shown(page, "No request to show")
        asking = asyncio.create_task(ask(site, "watched"))
        line = page.locator("#exchanges tr", has_text="watched")
        await line.get_by_text("running").wait_for()
        await line.get_by_role("link").click()
        await page.locator("#stream").scroll_into_view_if_needed()
        for text, event in (("First", go), (" middle", on), (" last", None)):
            for column in ("reads", "events", "sent"):
                await row(page, column, text).wait_for()
            assert event is None or await page.locator("#summary").get_by_text("running").count() == 1
            if event:
                event.set()
        await asking
        await page.locator("#summary").get_by_text("200").wait_for()
        await row(page, "sent", "[DONE]").wait_for()
        await page.locator("#ledger", has_text="No warnings.").wait_for()
        await page.go_back()
        await line.get_by_text("200").wait_for()
        assert page.complaints == []


async def test_the_list_is_filtered_by_model_status_and_what_was_noted():
    more = {"other": {"backends": ["up"]}}
    scripts = (HELLO, HELLO, whole("no", 500))
    async with chromium() as browser, listening(*scripts, more_models=more, **ON) as site, page_of(browser) as page:
        await ask(site, "noted", surprise=1)
        await ask(site, "other", model="other")
        await ask(site, "failed")
        await page.goto(f"{url_of(site)}/inspector")
        rows = page.locator("#exchanges tr")
        await rows.nth(2).wait_for()
        for label, value, left in (("Warning", "forwarded", "noted"), ("Status", "5xx", "failed")):
            await page.get_by_label(label).select_option(value)
            await expect(rows).to_have_count(1)
            assert left in await rows.first.inner_text()
            await page.get_by_label(label).select_option("")
            await rows.nth(2).wait_for()
        await page.get_by_label("Model", exact=True).first.select_option("other")
        await expect(rows).to_have_count(1)
        assert "other" in await rows.first.inner_text()


async def test_a_key_is_asked_for():
    async with chromium() as browser, listening(HELLO, auth={"keys": KEYS}, **ON) as site, page_of(browser) as page:
        await site.chat(headers={**EVE, "x-request-id": "the-first-one"})
        await page.goto(f"{url_of(site)}/inspector?id=the-first-one")
        for wrong, why in (("no-key", "Incorrect API key"), ("ann-key", "lacks the scope 'admin'")):
            await page.get_by_label("API key", exact=True).fill(wrong)
            await page.keyboard.press("Enter")
            await until_shown(page, why)
            assert await focused(page) == "key"
        await page.get_by_label("API key", exact=True).fill("eve-key")
        await page.keyboard.press("Enter")
        await page.locator("#which", has_text="the-first-one").wait_for()
        await page.get_by_role("button", name="Forget the key").click()
        await page.get_by_label("API key", exact=True).wait_for()


# One, in three columns


async def test_a_chunk_shows_what_became_of_it_and_what_it_came_of():
    weather = Weather()
    async with chromium() as browser, listening(weather.script, **HERMES, **ON) as site, page_of(browser) as page:
        await weather.ask(site, "one")
        await open_one(page, site, "one")
        await show_stream(page)
        await row(page, "reads", " to know").click()
        assert [text for text in await linked(page, "events") if "Reasoning" in text and "to know" in text]
        assert [text for text in await linked(page, "sent") if "reasoning_content" in text and "to know" in text]
        await row(page, "sent", "the weather.").click()
        assert " the weather." in (await linked(page, "reads"))[0]
        assert "the weather." in await page.locator("#chosen").inner_text()
        await row(page, "events", "Reasoning").click()
        assert "They want" in await page.locator("#chosen").inner_text()
        assert await page.locator("#reads mark", has_text="<think>").count() == 1
        assert page.complaints == []


async def test_arguments_are_shown_as_they_had_grown():
    weather = Weather()
    async with chromium() as browser, listening(weather.script, **HERMES, **ON) as site, page_of(browser) as page:
        await weather.ask(site, "one")
        await open_one(page, site, "one")
        await show_stream(page)
        calls = page.locator("#calls pre")
        assert json.loads(await calls.inner_text()) == {"city": "Oslo", "days": 3}
        await row(page, "events", "ToolArgs").click()
        early = await calls.inner_text()
        assert early and "Oslo" not in early
        assert await page.locator("#calls mark").count() == 1
        assert await page.locator("#calls h4").inner_text() == "get_weather"


async def test_repairs_and_times_are_shown():
    cut = stream(chunk(tool_calls=call("get_weather", '{"city": "Os', id="c")), chunk(finish="length"), USAGE)
    async with chromium() as browser, listening(cut, **ON) as site, page_of(browser) as page:
        await ask(site, "one", tools=TOOLS)
        await open_one(page, site, "one")
        await show_stream(page)
        assert await page.locator("#events .made").count() > 0
        shown = await page.locator("#timeline").get_attribute("aria-label")
        assert "first byte after" in shown and "24 tokens" in shown
        assert "h" in await page.locator("#timeline .piece").get_attribute("d")


async def test_ten_thousand_chunks_are_a_few_rows():
    script = [head(), *(chunk(f"word{number} ") for number in range(10_000)), *HELLO[1:]]
    async with chromium() as browser, listening(script, **ON) as site, page_of(browser) as page:
        await ask(site, "long")
        await open_one(page, site, "long")
        await show_stream(page)
        events = page.locator("#events")
        await events.focus()
        for key, text in (("End", "Finish"), ("Home", "format")):
            await page.keyboard.press(key)
            assert text in await page.locator("#events .row.chosen").inner_text()
            assert await page.locator(".row").count() < 200
        await events.evaluate("(box) => { box.scrollTop = 5000 * 26 }")
        await row(page, "events", "word4999").click()
        assert "word4999" in await page.locator("#chosen").inner_text()
        for column in ("reads", "sent"):
            assert len(await linked(page, column)) == 1
        assert await page.locator(".row").count() < 200
        assert page.complaints == []


async def test_all_can_be_done_by_keyboard():
    weather = Weather()
    async with chromium() as browser, listening(weather.script, **HERMES, **ON) as site, page_of(browser) as page:
        await weather.ask(site, "one")
        await page.goto(f"{url_of(site)}/inspector")
        await page.locator("#exchanges a").first.focus()
        await page.keyboard.press("Enter")
        await page.locator("#which", has_text="one").wait_for()
        await page.get_by_role("status").get_by_text("complete").wait_for()
        await page.locator("#reads").focus()
        await page.locator("#stream[aria-busy=false]").wait_for()
        assert await page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        for key in ("Home", *["ArrowDown"] * 4):
            await page.keyboard.press(key)
        chosen = page.locator("#reads .row.chosen")
        assert await chosen.get_attribute("aria-selected") == "true"
        assert await page.locator("#reads").get_attribute("aria-activedescendant") == await chosen.get_attribute("id")
        await page.keyboard.press("ArrowRight")
        assert await focused(page) == "events"
        await page.keyboard.press("Enter")
        assert await focused(page) == "sent"
        assert "reasoning_content" in await page.locator("#chosen").inner_text()
        await page.keyboard.press("ArrowLeft")
        assert await focused(page) == "events"


# What can be done with it


async def test_it_is_copied_downloaded_and_replayed():
    weather = Weather()
    async with chromium() as browser, listening(weather.script, **HERMES, **ON) as site, page_of(browser) as page:
        await weather.ask(site, "one")
        await open_one(page, site, "one")
        await page.get_by_role("button", name="Copy as curl").click()
        await until_shown(page, '-H "authorization: Bearer $GATEWAY_KEY"')
        async with page.expect_download() as waiting:
            await page.get_by_role("button", name="Recording").click()
        file = await waiting.value
        assert file.suggested_filename == "one.jsonl"
        assert parse_recording(await asyncio.to_thread(Path(await file.path()).read_bytes)).over
        for format, report in (("hermes_json", "the same"), ("llama3_json", "another")):
            await page.get_by_label("Read as").select_option(format)
            await page.get_by_role("button", name="Replay").click()
            await page.locator("#report", has_text=f"{format} gives {report} response").wait_for()
        assert "get_weather" in await page.locator("#before article").inner_text()
        assert page.url.endswith("&compare=llama3_json") and page.complaints == []


async def test_a_replay_shows_its_progress():
    weather, go = Weather(), asyncio.Event()

    async def hold(route):
        await go.wait()
        await route.continue_()

    async with chromium() as browser, listening(weather.script, **HERMES, **ON) as site, page_of(browser) as page:
        await weather.ask(site, "one")
        await open_one(page, site, "one")
        await page.route("**/replay?*", hold)
        bar = page.get_by_role("progressbar", name="Replay")
        await expect(bar).to_be_hidden()
        for format in ("hermes_json", "llama3_json"):
            await page.get_by_label("Read as").select_option(format)
            await page.get_by_role("button", name="Replay").click()
            await page.locator("#report", has_text=f"Replaying in the format {format} …").wait_for()
        await expect(bar).to_be_visible()
        go.set()
        await page.locator("#report", has_text="llama3_json gives another response").wait_for()
        await expect(bar).to_be_hidden()
        assert page.complaints == []


# What became of it


async def test_a_call_in_another_format_is_replayed_by_one_click():
    text = 'Sure. [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}}]'
    script = stream(chunk(text), chunk(finish="stop"))
    async with chromium() as browser, listening(script, **HERMES, **ON) as site, page_of(browser) as page:
        await ask(site, "one", tools=TOOLS)
        await open_one(page, site, "one")
        await until_shown(page, "No tool was called, but the text has the markup of mistral.")
        await page.get_by_role("button", name="Replay as mistral").click()
        assert "Oslo" in await page.locator("#after article pre").inner_text()
        assert "format: mistral" in await page.locator("#yaml").inner_text()
        assert page.url.endswith("&compare=mistral") and page.complaints == []


async def test_a_failed_request_says_what_failed():
    refusals = [whole({"error": {"message": "CUDA out of memory"}}, 500)] * 2
    async with chromium() as browser, listening(*refusals, **ON) as site, page_of(browser) as page:
        await ask(site, "one")
        await open_one(page, site, "one")
        await until_shown(page, "Backend 'up' returned HTTP 500, and the client received 502.")
        for body in ("#upstream-body", "#client-body"):
            await expect(page.locator(body)).to_contain_text("CUDA out of memory")
        assert await page.get_by_text("unchanged").count() == 0 and page.complaints == []


async def test_a_complete_request_shows_its_conversation_and_times():
    weather = Weather()
    async with chromium() as browser, listening(weather.script, **HERMES, **ON) as site, page_of(browser) as page:
        await weather.ask(site, "one")
        await open_one(page, site, "one")
        await until_shown(page, "The response is complete.")
        talk = await page.locator("#talk").inner_text()
        assert "Hello" in talk and "They want to know the weather." in talk and "get_weather" in talk
        phases = await page.locator("#phases th").all_inner_texts()
        assert [name.partition("\n")[0] for name in phases][-4:] == ["Reasoning", "Text", "Tool call", "End"]
        assert page.complaints == []


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_a_request_of_the_playground_is_one_click_from_its_page(api):
    async with chromium() as browser, listening(HELLO, **ON) as site, page_of(browser) as page:
        await page.goto(f"{url_of(site)}/playground")
        await expect(page.get_by_label("Model")).to_have_value("m")
        await page.get_by_label("API", exact=True).select_option(api)
        await page.locator("#message").fill("Hello?")
        await page.keyboard.press("Control+Enter")
        await page.get_by_role("link", name="Inspect", exact=True).click()
        await page.get_by_role("heading", name="Hello?").wait_for()
        await page.get_by_role("status").get_by_text("complete").wait_for()
        await show_stream(page)
        assert "Hello?" in await row(page, "sent", "request").inner_text()
        assert page.complaints == []


# Nobody's words run


async def test_nobodys_words_are_run():
    more = {EVIL: {"backends": ["up"], "upstream_model": EVIL}}
    script = stream(chunk(EVIL), chunk(tool_calls=call(EVIL, json.dumps({"a": EVIL}), id="c")), chunk(finish="stop"))
    tools = [{"type": "function", "function": {"name": EVIL, "description": EVIL}}]
    id = "<img/src=x/onerror=alert(1)>"
    async with chromium() as browser, listening(script, more_models=more, **ON) as site, page_of(browser) as page:
        messages = [{"role": "user", "content": EVIL}]
        await site.chat(model=EVIL, headers={"x-request-id": id}, messages=messages, tools=tools, stream=True)
        await page.goto(f"{url_of(site)}/inspector")
        await page.get_by_role("link", name=id).click()
        await page.locator("#which", has_text=id).wait_for()
        await page.get_by_role("status").get_by_text("complete").wait_for()
        await show_stream(page)
        for column, text in (("sent", "request"), ("reads", "onerror"), ("events", "ToolArgs")):
            await row(page, column, text).click()
            await page.locator("#chosen", has_text="onerror").wait_for()
        await page.get_by_role("button", name="Copy as curl").click()
        assert EVIL in await page.locator("#calls h4").inner_text()
        assert (
            await page.locator("main img, main script, main svg:not(#timeline, #axis, #phases svg, .icon)").count() == 0
        )
        assert page.complaints == []


# How it looks


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_all_fits_and_can_be_read(size, scheme):
    weather = Weather()
    async with chromium() as browser, listening(weather.script, HELLO, **HERMES, **ON) as site:
        await weather.ask(site, "req_the-weather-in-oslo", surprise=1)
        await ask(site, "req_" + "x" * 60)
        async with page_of(browser, size, color_scheme=scheme) as page:
            await page.goto(f"{url_of(site)}/inspector")
            await page.locator("#exchanges tr").nth(1).wait_for()
            await readable(page, size, scheme, "list")
            await open_one(page, site, "req_the-weather-in-oslo")
            await show_stream(page)
            await row(page, "reads", " to know").click()
            await readable(page, size, scheme, "one")
            if size == PHONE:
                assert not await page.locator("#events").is_visible()
                await page.get_by_role("button", name="Events").click()
                await page.locator("#events .row.linked").first.wait_for()
                assert not await page.locator("#reads").is_visible()


async def readable(page, size, scheme, name):
    assert await page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(channels(ground)) < 128 * 3) == (scheme == "dark")
    for contrast, text in await page.evaluate(CONTRASTS):
        assert contrast >= 4.5, text
    await picture(page, f"inspector-{name}-{scheme}-{size['width']}")
    assert page.complaints == []
