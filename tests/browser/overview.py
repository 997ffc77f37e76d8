"""The overview, as people use it."""

import asyncio

import pytest

from browser.chromium import DESKTOP, PHONE, chromium, page_of, picture
from gateway import config
from gateway.server.app import create_app
from gateway.server.observability import logs
from support.app import listening, running, settings
from support.upstream import HANG, HELLO, chunk, head, whole

ON = {"inspector": {"enabled": True}}
KEYS = [
    {"name": "ann", "key": "ann-key"},
    {"name": "eve", "key": "eve-key", "scopes": ["inference", "admin"]},
]
EVE = {"authorization": "Bearer eve-key"}
EVIL = "<img/src=x/onerror=alert(1)>\"'</pre><script>alert(2)</script>"


def url_of(site):
    return str(site.client.base_url)


async def until_shown(page, text):
    await page.get_by_text(text, exact=False).first.wait_for()


async def focused(page):
    """What has the focus: its id, or else its text."""
    return await page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")


# The key


async def test_a_key_is_asked_for_kept_for_the_tab_and_forgotten():
    async with chromium() as browser, listening(HELLO, auth={"keys": KEYS}, **ON) as site:
        await site.chat(headers={**EVE, "x-request-id": "the-first-one"})
        async with page_of(browser) as page:
            await page.goto(url_of(site))
            await until_shown(page, "API key required")
            assert "the-first-one" not in await page.content()
            await picture(page, "key-form")
            for wrong, reason in (("no-key", "Incorrect API key"), ("ann-key", "lacks the scope 'admin'")):
                await page.get_by_label("API key", exact=True).fill(wrong)
                await page.keyboard.press("Enter")
                await until_shown(page, reason)
                assert await focused(page) == "key"
            await page.get_by_label("API key", exact=True).fill("eve-key")
            await page.get_by_role("button", name="Show the page").click()
            await until_shown(page, "the-first-one")
            assert await focused(page) == "content"
            await page.reload()
            await until_shown(page, "the-first-one")
            assert await page.evaluate("document.cookie + JSON.stringify(localStorage)") == "{}"
            await page.get_by_role("button", name="Forget the key").click()
            await until_shown(page, "API key required")
            assert await page.evaluate("sessionStorage.length") == 0
            assert [
                complaint for complaint in page.complaints if "401" not in complaint and "403" not in complaint
            ] == []
        async with page_of(browser) as page:
            await page.goto(url_of(site))
            await until_shown(page, "API key required")


async def test_a_key_that_holds_no_more_is_asked_for_anew():
    async with chromium() as browser, listening(HELLO, auth={"keys": KEYS}, **ON) as site, page_of(browser) as page:
        await page.goto(url_of(site))
        await page.evaluate("sessionStorage.setItem('gateway-key', 'eve-key')")
        await page.reload()
        await until_shown(page, "Backends")
        await page.evaluate("sessionStorage.setItem('gateway-key', 'old-key')")
        await page.get_by_role("heading", name="API key required").wait_for()
        assert await page.evaluate("sessionStorage.length") == 0


# What is going on


async def test_a_stream_is_seen_from_its_beginning_to_its_end_without_a_reload():
    go = asyncio.Event()
    script = [head(), chunk("Hi"), go, *HELLO[1:]]
    async with chromium() as browser, listening(script, **ON) as site, page_of(browser) as page:
        await page.goto(url_of(site))
        await page.evaluate("window.here = true")
        asking = asyncio.create_task(site.chat(stream=True, headers={"x-request-id": "watched"}))
        row = page.locator("#request-rows tr", has_text="watched")
        await row.get_by_text("running").wait_for()
        await page.locator("#stats").get_by_text("1 running").wait_for()
        go.set()
        assert (await asking).status_code == 200
        await row.get_by_text("200").wait_for()
        assert await page.evaluate("window.here")
        assert page.complaints == []


async def test_it_stands_still_while_it_is_paused_and_goes_on_after_that():
    async with chromium() as browser, listening(HELLO, **ON) as site, page_of(browser) as page:
        await page.goto(url_of(site))
        await until_shown(page, "as of")
        live = page.get_by_role("button", name="Live")
        await live.click()
        await page.get_by_role("status").get_by_text("paused").wait_for()
        assert await live.get_attribute("aria-pressed") == "false"
        await site.chat(headers={"x-request-id": "meanwhile"})
        await page.clock.install()
        await page.clock.run_for(60_000)
        assert await page.get_by_text("meanwhile").count() == 0
        await live.click()
        await until_shown(page, "meanwhile")


async def test_a_gateway_that_is_gone_is_told_of_and_waited_for():
    async with chromium() as browser, page_of(browser) as page:
        configuration = settings("http://127.0.0.1:1", **ON)
        async with running(create_app(configuration), configuration) as url:
            await page.goto(url)
            await until_shown(page, "as of")
            await page.route("**/*", lambda route: route.abort())
            await until_shown(page, "The gateway does not respond.")
            await page.unroute("**/*")
            await until_shown(page, "as of")
            await page.route("**/*", lambda route: route.fulfill(status=500, body="no"))
            await until_shown(page, "The gateway returned HTTP 500.")


# Nobody's words run


async def test_nobodys_words_are_run():
    more = {EVIL: {"backends": ["up"], "aliases": [f"{EVIL}2"], "upstream_model": EVIL}}
    script = [whole({"error": EVIL}, 500)]
    try:
        async with (
            chromium() as browser,
            listening(*script, more_models=more, logs={"content": True}, **ON) as site,
            page_of(browser) as page,
        ):
            await site.chat(model=EVIL, headers={"x-request-id": "<img/src=x/onerror=alert(1)>"})
            await page.goto(url_of(site))
            await page.locator("#request-rows").get_by_text("onerror").locator("visible=true").first.wait_for()
            await site.chat(model=EVIL, headers={"x-request-id": "<svg/onload=alert(3)>"})
            await page.locator("#request-rows").get_by_text("onload").locator("visible=true").first.wait_for()
            assert await page.locator("main img, main script, main svg:not(.icon, .spark)").count() == 0
            assert await page.locator("#error-rows a").first.inner_text() == EVIL
            assert page.complaints == []
    finally:
        logs.apply_settings(config.LogSettings())


@pytest.mark.parametrize(
    "attempt",
    [
        "document.body.innerHTML = '<img src=x>'",
        "new DOMParser().parseFromString('<p>', 'text/html')",
        "trustedTypes.createPolicy('other', {createHTML: (text) => text})",
        "trustedTypes.createPolicy('console', {createHTML: (text) => text})",
    ],
)
async def test_what_gets_into_a_page_cannot_make_markup_of_text(attempt):
    async with chromium() as browser, listening(HELLO, **ON) as site, page_of(browser) as page:
        await page.goto(url_of(site))
        await until_shown(page, "as of")
        assert (
            await page.evaluate(f"(() => {{ try {{ {attempt} }} catch (error) {{ return error.name }} }})()")
            == "TypeError"
        )


async def test_scripts_and_styles_of_others_and_frames_are_refused():
    async with chromium() as browser, listening(HELLO, **ON) as site, page_of(browser) as page:
        await page.goto(url_of(site))
        await page.evaluate(
            """() => {
                const script = document.createElement("script");
                try { script.text = "window.ran = true"; } catch { script.append("window.ran = true"); }
                const style = document.createElement("style");
                style.append("body { display: none }");
                document.head.append(script, style);
            }"""
        )
        assert await page.evaluate("window.ran") is None
        assert await page.evaluate("getComputedStyle(document.body).display") == "flex"
        async with page_of(browser) as other:
            await other.route("http://other.example/", lambda route: route.fulfill(body=f"<iframe src={url_of(site)}>", content_type="text/html"))  # fmt: skip
            await other.goto("http://other.example/")
            assert not [frame for frame in other.frames if frame.url.startswith(url_of(site))]


# How it looks, and who can use it


async def busy(site):
    """A bit of everything."""
    for number in range(3):
        await site.chat(stream=True, headers={"x-request-id": f"{number}" * 60}, surprise=1)
    await site.chat(model="nobody-has-it")


MORE = {
    "more_models": {"qwen3-8b-with-a-long-name-" + "x" * 60: {"backends": ["up"], "aliases": ["another"]}},
    "more_backends": {"gone": {"url": "http://127.0.0.1:1", "kind": "vllm"}},
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_all_fits_and_can_be_read(size, scheme):
    unending = [head(), chunk("Hi"), HANG]
    async with chromium() as browser, listening(HELLO, HELLO, HELLO, unending, **MORE, **ON) as site:
        await busy(site)
        asking = asyncio.create_task(site.chat(stream=True))
        async with page_of(browser, size, color_scheme=scheme) as page:
            await page.goto(url_of(site))
            await until_shown(page, "as of")
            assert await page.evaluate("document.documentElement.scrollWidth") <= size["width"]
            ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(channels(ground)) < 128 * 3) == (scheme == "dark")
            for contrast, text in await page.evaluate(CONTRASTS):
                assert contrast >= 4.5, text
            await page.get_by_text("running").first.wait_for()
            await picture(page, f"overview-{scheme}-{size['width']}")
            assert page.complaints == []
        asking.cancel()


def channels(color):
    return [int(one) for one in color.strip("rgb()").split(",")[:3]]


# Of each text with what is behind it, as WCAG 2 has it.
CONTRASTS = """() => {
    const channels = (color) => color.match(/[\\d.]+/g).map(Number);
    const luminance = (color) => channels(color).slice(0, 3)
        .map((one) => one / 255).map((one) => one <= .03928 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4)
        .reduce((sum, one, place) => sum + one * [.2126, .7152, .0722][place], 0);
    const behind = (node) => {
        const color = getComputedStyle(node).backgroundColor;
        return (channels(color)[3] ?? 1) === 0 && node.parentElement ? behind(node.parentElement) : color;
    };
    const found = [];
    for (const node of document.querySelectorAll("body *")) {
        if (![...node.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim())) continue;
        if (!node.checkVisibility()) continue;
        const [dark, light] = [getComputedStyle(node).color, behind(node)].map(luminance).sort((a, b) => a - b);
        found.push([(light + .05) / (dark + .05), node.textContent.trim().slice(0, 60)]);
    }
    return found;
}"""


async def test_all_can_be_reached_and_used_by_keyboard():
    async with chromium() as browser, listening(HELLO, **ON) as site, page_of(browser, PHONE) as page:
        await busy(site)
        await page.goto(url_of(site))
        await until_shown(page, "as of")
        await page.keyboard.press("Tab")
        assert await focused(page) == "Skip to the content"
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert await page.evaluate(outline) == "solid"
        for place in ("Overview", "Inspector", "Usage", "Playground", "Docs", "theme", "live"):
            await page.keyboard.press("Tab")
            assert await focused(page) == place
        assert await page.evaluate(outline) == "solid"
        await page.keyboard.press("Enter")
        await until_shown(page, "paused")
        for _ in range(7):
            await page.keyboard.press("Shift+Tab")
        await page.keyboard.press("Enter")
        assert await focused(page) == "content"
        reached = []
        while "All requests" not in reached:
            await page.keyboard.press("Tab")
            assert len(reached) < 60
            reached.append(
                await page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.textContent")
            )
        wanted = ["Table of backends", "up", "Table of models", "m", "All errors", "All warnings", "Table of requests"]
        places = [reached.index(name) for name in wanted]
        assert places == sorted(places)


async def test_without_scripts_the_page_is_there_as_it_was():
    async with (
        chromium() as browser,
        listening(HELLO, **ON) as site,
        page_of(browser, java_script_enabled=False) as page,
    ):
        await site.chat()
        await page.goto(url_of(site))
        await until_shown(page, "Last requests")
        await until_shown(page, "its name is unknown")
