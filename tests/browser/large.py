"""Many requests and long streams: the pages stay responsive, and hold few elements."""

import pytest
from playwright.async_api import expect

from browser.chromium import chromium, page_of
from browser.inspector import ask, linked, open_one, row, show_stream
from browser.overview import ON, url_of
from support.app import listening
from support.upstream import HELLO, chunk, head

pytestmark = pytest.mark.timeout(600)  # seconds: 100,000 chunks take two minutes on a busy machine
# The longest task of the page's thread, in milliseconds.
TASKS = """window.longest = 0;
new PerformanceObserver((list) => {
    window.longest = Math.max(window.longest, ...list.getEntries().map((one) => one.duration));
}).observe({ type: "longtask", buffered: true });"""
LONG = {"inspector": {"enabled": True}, "recording": {"exchange_bytes": 100_000_000}}


async def test_a_list_of_a_thousand_requests_has_pages_and_is_searched():
    async with chromium() as browser, listening(*[HELLO] * 1000, **ON) as site, page_of(browser) as page:
        for number in range(1000):
            question = [{"role": "user", "content": f"Question {number}"}]
            await site.chat(messages=question, headers={"x-request-id": f"request-{number}"})
        await page.goto(f"{url_of(site)}/inspector")
        rows = page.locator("#exchanges tr")
        await expect(page.get_by_text("1,000 of 1,000 requests")).to_be_visible()
        assert await rows.count() == 100
        for left in range(1, 10):
            await page.get_by_role("button", name="Older").click()
            await expect(page.get_by_text(f"{1000 - 100 * left:,} of 1,000 requests")).to_be_visible()
        await expect(rows.last).to_contain_text("Question 0")
        assert await page.get_by_role("button", name="Older").is_disabled()
        await page.get_by_label("Search").fill("question 77")
        await expect(page.get_by_text("11 of 1,000 requests")).to_be_visible()
        assert page.complaints == []


async def test_a_stream_of_a_hundred_thousand_rows_does_not_stop_the_page():
    script = [head(), *(chunk(f"word{number} ") for number in range(100_000)), *HELLO[1:]]
    async with chromium() as browser, listening(script, **LONG) as site, page_of(browser) as page:
        await ask(site, "long")
        await page.add_init_script(TASKS)
        await open_one(page, site, "long")
        await show_stream(page)
        await page.locator("#events").focus()
        await page.keyboard.press("End")
        await expect(page.locator("#events .row.chosen")).to_contain_text("Finish")
        await page.locator("#events").evaluate("(box) => { box.scrollTop = 50_000 * 26 }")
        await row(page, "events", "word49999").click()
        assert len(await linked(page, "sent")) == 1
        assert await page.locator(".row").count() < 200
        assert await page.evaluate("document.querySelectorAll('*').length") < 2000
        assert await page.evaluate("window.longest") < 1000
        assert page.complaints == []
