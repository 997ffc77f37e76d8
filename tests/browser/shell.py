"""What all pages share: the theme, copying, accessibility and a layout that does not move."""

import pytest
from axe_playwright_python.async_playwright import Axe

from browser.chromium import DESKTOP, PHONE, chromium, page_of
from browser.overview import KEYS, MORE, ON, busy, url_of
from support.app import listening
from support.upstream import HELLO

PAGES = ["/", "/inspector", "/usage", "/playground", "/docs", "/docs/warnings"]
CURRENT = {"/docs/warnings": "/docs"}  # the entry of the navigation for a page that has none
SIZES = pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])
# Bytes of a page, and of its styles, scripts and icons together: as files, and as sent.
MOST_HTML = 30_000
WEIGHT = 48_000, 13_000
# All that moves after the first paint, in layout-shift units.
SHIFTS = """window.shifts = [];
new PerformanceObserver((list) => window.shifts.push(...list.getEntries().map((one) => one.value)))
    .observe({ type: "layout-shift", buffered: true });"""
TARGETS = {"rules": {"target-size": {"enabled": True}}}


async def faults(page):
    """Return what axe-core finds: rules with the elements that break them."""
    found = await Axe().run(page, options=TARGETS)
    return {one["id"]: [node["html"] for node in one["nodes"]] for one in found.response["violations"]}


async def assert_sound(page, address, size, selector):
    """Open a page, and check its accessibility, its width and that it stands still, once an element is there."""
    await page.add_init_script(SHIFTS)
    await page.goto(address)
    await page.locator(selector).locator("visible=true").first.wait_for()
    await page.wait_for_load_state("networkidle")
    assert await faults(page) == {}
    assert await page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert round(sum(await page.evaluate("window.shifts")), 3) == 0
    assert [
        complaint for complaint in page.complaints if "401" not in complaint
    ] == []  # the key prompt follows a refusal


@SCHEMES
@SIZES
@pytest.mark.parametrize("path", PAGES)
async def test_a_page_has_no_fault_of_accessibility_and_stands_still(path, size, scheme):
    async with chromium() as browser, listening(HELLO, HELLO, HELLO, **MORE, **ON) as site:
        await busy(site)
        async with page_of(browser, size, color_scheme=scheme, has_touch=size is PHONE) as page:
            await assert_sound(page, url_of(site) + path, size, "h1")
            current = page.locator("nav [aria-current=page]")
            assert await current.get_attribute("href") == CURRENT.get(path, path)


# Pages that depend on the settings: the configuration, the path, and an element that shows that the page is complete.
STATES = {
    "first run": ({}, "/", "#status:has-text('as of')"),
    "inspector off": ({}, "/inspector", "#configuration"),
    "key of the overview": ({"auth": {"keys": KEYS}}, "/", "#key"),
    "key of the inspector": ({"auth": {"keys": KEYS}, **ON}, "/inspector", "#key"),
    "key of the playground": ({"auth": {"keys": KEYS}}, "/playground", "#key"),
}


@SCHEMES
@SIZES
@pytest.mark.parametrize("state", STATES)
async def test_a_state_of_a_page_has_no_fault_of_accessibility_and_stands_still(state, size, scheme):
    settings, path, selector = STATES[state]
    look = {"color_scheme": scheme, "has_touch": size is PHONE}
    async with chromium() as browser, listening(HELLO, **settings) as site, page_of(browser, size, **look) as page:
        await assert_sound(page, url_of(site) + path, size, selector)


async def test_the_first_run_page_has_texts_to_copy_and_becomes_the_overview():
    more = {"other": {"backends": ["up"]}}
    async with chromium() as browser, listening(HELLO, more_models=more) as site, page_of(browser) as page:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await page.goto(url_of(site))
        await page.get_by_role("tab", name="curl").focus()
        for name in ("Python", "Codex"):
            await page.keyboard.press("ArrowRight")
            assert await page.get_by_role("tab", name=name).get_attribute("aria-selected") == "true"
        await page.get_by_label("Model").select_option("other")
        shown = page.get_by_role("tabpanel", name="Codex")
        await shown.get_by_text('model = "other"').wait_for()
        await shown.get_by_role("button", name="Copy").first.click()
        await page.locator("#toast", has_text="Copied.").wait_for()
        assert 'model = "other"' in await page.evaluate("navigator.clipboard.readText()")
        await page.reload()
        await shown.get_by_text('model = "other"').wait_for()
        await site.chat()
        await page.get_by_role("heading", name="Overview").wait_for()
        assert page.complaints == []


async def test_the_theme_is_chosen_and_kept():
    async with chromium() as browser, listening(HELLO, **ON) as site, page_of(browser, color_scheme="light") as page:
        await page.goto(url_of(site))
        ground = "getComputedStyle(document.body).backgroundColor"
        light = await page.evaluate(ground)
        for name in ("Theme: auto. Switch to light.", "Theme: light. Switch to dark."):
            await page.get_by_role("button", name=name).click()
        dark = await page.evaluate(ground)
        assert dark != light
        await page.goto(f"{url_of(site)}/inspector")
        assert await page.evaluate(ground) == dark
        await page.get_by_role("button", name="Theme: dark. Switch to auto.").click()
        assert await page.evaluate(ground) == light


@pytest.mark.parametrize("path", [*PAGES, "/inspector?id=one"])
async def test_a_page_its_styles_its_scripts_and_its_icons_are_small(path):
    async with chromium() as browser, listening(HELLO, **ON) as site, page_of(browser) as page:
        await site.chat(headers={"x-request-id": "one"})
        await page.goto(url_of(site) + path)
        await page.wait_for_load_state("networkidle")
        loaded = await page.evaluate(
            "performance.getEntries().map((one) => [one.name, one.decodedBodySize, one.encodedBodySize])"
        )
        sizes = [sizes for address, *sizes in loaded if "/assets/" in address]
        whole, sent = map(sum, zip(*sizes, strict=True))
        (html,) = [size for address, size, _ in loaded if address == url_of(site) + path]
        most, most_sent = WEIGHT
        assert 0 < html <= MOST_HTML and 0 < whole <= most and 0 < sent <= most_sent
