"""The inspector's list: the address is its state, and what is being read does not move."""

from playwright.async_api import expect

from browser.chromium import chromium, page_of
from browser.overview import ON, url_of
from support.app import listening
from support.upstream import HELLO, whole


async def ask(site, id, prompt="Hello", **more):
    return await site.chat(headers={"x-request-id": id}, messages=[{"role": "user", "content": prompt}], **more)


async def test_the_list_is_searched_while_typing_and_survives_back_and_reload():
    async with chromium() as browser, listening(HELLO, HELLO, **ON) as site, page_of(browser) as page:
        await ask(site, "first", "Find the faults")
        await ask(site, "second", "Review the patch")
        await page.goto(f"{url_of(site)}/inspector")
        rows = page.locator("#exchanges tr")
        await expect(rows).to_have_count(2)
        await page.keyboard.press("/")
        await page.keyboard.type("FAULTS")
        await expect(rows).to_have_count(1)
        await expect(page.get_by_text("1 of 2 requests")).to_be_visible()
        assert page.url.endswith("?q=FAULTS")
        await page.reload()
        await expect(rows).to_have_count(1)
        assert await page.get_by_label("Search").input_value() == "FAULTS"
        await page.get_by_role("link", name="Find the faults").press("Enter")
        await page.locator("#which", has_text="first").wait_for()
        await page.go_back()
        await expect(rows).to_have_count(1)
        await page.get_by_role("button", name="q: FAULTS").press("Enter")
        await expect(rows).to_have_count(2)
        assert page.url.endswith("/inspector") and page.complaints == []


async def test_a_number_of_the_overview_leads_to_its_requests():
    scripts = (HELLO, whole("no", 500))
    async with chromium() as browser, listening(*scripts, **ON) as site, page_of(browser) as page:
        await ask(site, "well")
        await ask(site, "failed")
        await page.goto(url_of(site))
        await page.get_by_role("link", name="All errors").press("Enter")
        rows = page.locator("#exchanges tr")
        await expect(rows).to_have_count(1)
        await expect(rows.first).to_contain_text("failed")
        assert await page.get_by_label("Status").input_value() == "error"


async def test_new_requests_wait_while_the_list_is_read():
    async with chromium() as browser, listening(HELLO, HELLO, **ON) as site, page_of(browser) as page:
        await ask(site, "old")
        await page.goto(f"{url_of(site)}/inspector")
        rows = page.locator("#exchanges tr")
        await rows.first.get_by_role("link").focus()
        await ask(site, "new")
        await page.get_by_role("button", name="1 new request").wait_for()
        await expect(rows).to_have_count(1)
        await page.get_by_role("button", name="1 new request").press("Enter")
        await expect(rows).to_have_count(2)
        await expect(rows.first).to_contain_text("new")


async def test_older_requests_are_on_further_pages():
    async with chromium() as browser, listening(*[HELLO] * 101, **ON) as site, page_of(browser) as page:
        await ask(site, "the-first")
        for number in range(100):
            await ask(site, f"later-{number}")
        await page.goto(f"{url_of(site)}/inspector")
        rows = page.locator("#exchanges tr")
        await expect(rows).to_have_count(100)
        await page.get_by_role("button", name="Older").click()
        await expect(rows).to_have_count(1)
        await expect(rows.first).to_contain_text("the-first")
        await page.get_by_role("button", name="Newest").click()
        await expect(rows).to_have_count(100)
        await page.go_back()
        await expect(rows).to_have_count(1)
