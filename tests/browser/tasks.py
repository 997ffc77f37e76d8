"""Three faults, each explained by the pages alone: from the overview to the cause, with the clicks counted."""

import pytest

from browser.chromium import DESKTOP, PHONE, chromium, page_of
from browser.inspector import HERMES, TOOLS, WEATHER, show_stream
from browser.overview import ON, until_shown, url_of
from browser.shell import SHIFTS, faults
from support.app import listening
from support.upstream import HELLO, call, chunk, stream, whole

QUESTION = [{"role": "user", "content": "How is the weather in Oslo?"}]
MISTRAL = 'Sure. [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}}]'
BROKEN = stream(
    chunk(tool_calls=call("get_weather", '{"city": "Oslo", "days": 3,}', id="call_1")), chunk(finish="tool_calls")
)
UNREAD = stream(chunk(MISTRAL), chunk(finish="stop"))
FAILED = whole({"error": {"message": "CUDA error: out of memory"}}, 500)


class Reader:
    """A reader who begins at the overview.  clicks: the number of links and buttons that were used."""

    def __init__(self, page):
        self.page, self.clicks = page, 0

    async def click(self, role, name, within=None):
        await (within or self.page).get_by_role(role, name=name).first.click()
        self.clicks += 1


async def weather(site, id="weather"):
    return await site.chat(messages=QUESTION, tools=TOOLS, stream=True, headers={"x-request-id": id})


async def test_broken_arguments_are_found_by_two_clicks():
    async with chromium() as browser, listening(BROKEN, **ON) as site, page_of(browser) as page:
        await weather(site)
        await page.goto(url_of(site))
        reader = Reader(page)
        await reader.click("link", "repaired", page.locator("#warning-rows"))
        await reader.click("link", QUESTION[0]["content"])
        await until_shown(page, "repaired:tool_calls.function.arguments")
        assert '"days": 3' in await page.get_by_label("Tool call get_weather").inner_text()
        assert reader.clicks == 2 and page.complaints == []


async def test_markup_of_another_format_is_found_and_replayed_by_two_clicks():
    async with chromium() as browser, listening(UNREAD, **HERMES, **ON) as site, page_of(browser) as page:
        await weather(site)
        await page.goto(url_of(site))
        reader = Reader(page)
        await reader.click("link", "weather", page.locator("#request-rows"))
        await until_shown(page, "No tool was called, but the text has the markup of mistral.")
        await reader.click("button", "Replay as mistral")
        await until_shown(page, "The format mistral gives another response.")
        assert '"city": "Oslo"' in await page.locator("#after").inner_text()
        assert "format: mistral" in await page.locator("#yaml").inner_text()
        assert reader.clicks == 2 and page.complaints == []


async def test_a_failure_of_a_backend_is_found_by_two_clicks():
    async with chromium() as browser, listening(FAILED, FAILED, **ON) as site, page_of(browser) as page:
        await weather(site)
        await page.goto(url_of(site))
        reader = Reader(page)
        await reader.click("link", "upstream_error", page.locator("#error-rows"))
        await reader.click("link", QUESTION[0]["content"])
        await until_shown(page, "Backend 'up' returned HTTP 500, and the client received 502.")
        assert "CUDA error: out of memory" in await page.get_by_label("Response of the backend").inner_text()
        assert reader.clicks == 2 and page.complaints == []


PAGES = {"complete": stream(*WEATHER), "repaired": BROKEN, "unread": UNREAD, "failed": FAILED}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", PAGES)
async def test_a_page_of_a_request_has_no_fault_of_accessibility_and_stands_still(name, size, scheme):
    script = PAGES[name]
    async with chromium() as browser, listening(script, script, **HERMES, **ON) as site:
        await weather(site)
        async with page_of(browser, size, color_scheme=scheme, has_touch=size is PHONE) as page:
            await page.add_init_script(SHIFTS)
            await page.goto(f"{url_of(site)}/inspector?id=weather")
            await page.get_by_role("status").get_by_text("complete").wait_for()
            await page.wait_for_load_state("networkidle")
            assert await faults(page) == {}
            assert await page.evaluate("document.documentElement.scrollWidth") <= size["width"]
            assert round(sum(await page.evaluate("window.shifts")), 3) == 0
            if name == "unread":
                await page.get_by_role("button", name="Replay as mistral").click()
                await until_shown(page, "Make it permanent")
                assert await faults(page) == {}
            assert page.complaints == []


async def test_the_place_of_a_reader_survives_back_and_reload():
    async with chromium() as browser, listening(HELLO, **ON) as site, page_of(browser) as page:
        await weather(site)
        await page.goto(f"{url_of(site)}/inspector?id=weather")
        await show_stream(page)
        await page.locator("#sent .row").first.click()
        assert page.url.endswith("&row=sent-0")
        position = await page.evaluate("scrollY")
        assert position > 0
        await page.reload()
        await page.locator("#sent .row.chosen").wait_for()
        assert await page.evaluate("scrollY") == position
        await page.goto(f"{url_of(site)}/docs")
        await page.go_back()
        await page.locator("#sent .row.chosen").wait_for()
        assert await page.evaluate("scrollY") == position
        assert page.complaints == []
