"""Make a picture of each page, in both themes, on a desktop and on a phone.

python -m browser.screenshots [FOLDER]        writes NAME-THEME-WIDTH.png; default: build/screenshots
python -m browser.screenshots --docs          writes the pictures of the documentation, in docs/images
"""

import asyncio
import json
import sys
from itertools import product
from pathlib import Path

from playwright.async_api import expect

from browser.chromium import DESKTOP, PHONE, chromium, page_of
from browser.inspector import TOOLS, WEATHER, show_stream
from browser.overview import KEYS, ON, url_of
from browser.tasks import FAILED, QUESTION, UNREAD
from support.app import listening
from support.paths import ROOT
from support.upstream import HELLO, stream

MODELS = {
    "model": {"backends": ["up"], "format": "hermes_json"},
    "more_models": {"qwen3-30b": {"backends": ["up"]}, "mistral-small-24b": {"backends": ["up"]}},
    "more_backends": {"laptop": {"url": "http://127.0.0.1:1", "kind": "ollama"}},
}
SCRIPTS = [stream(*WEATHER), HELLO, FAILED, UNREAD, stream(*WEATHER)]
PAGES = {
    "overview": "/",
    "inspector": "/inspector",
    "request": "/inspector?id=weather",
    "failed": "/inspector?id=failed",
    "unread": "/inspector?id=unread&compare=mistral",
    "usage": "/usage",
    "docs": "/docs",
    "warnings": "/docs/warnings",
}
IN_DOCS = {"first-run", "overview", "request", "unread", "playground"}


class Camera:
    """Take the pictures of a page: all of it in both themes and widths, or its first screen for the documentation."""

    def __init__(self, browser, folder, docs):
        self.browser, self.folder, self.docs = browser, folder, docs

    async def shoot(self, name, address, prepare=None):
        """Write the pictures of one page.  prepare(page): brings it into the state to be shown."""
        if self.docs and name not in IN_DOCS:
            return
        for theme, size in [("light", DESKTOP)] if self.docs else product(("light", "dark"), (DESKTOP, PHONE)):
            async with page_of(self.browser, size, color_scheme=theme) as page:
                await page.goto(address)
                if prepare:
                    await prepare(page)
                await page.wait_for_load_state("networkidle")
                if not self.docs and "?id=" in address:
                    await show_stream(page)
                await page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
                file = f"{name}.png" if self.docs else f"{name}-{theme}-{size['width']}.png"
                await page.screenshot(path=self.folder / file, full_page=not self.docs)


async def converse(page):
    await expect(page.get_by_label("Model")).to_have_value("m")
    await page.get_by_label("System prompt").fill("Answer in one sentence.")
    await page.get_by_label("Tools").fill(json.dumps(TOOLS, indent=2))
    await page.locator("#message").fill(QUESTION[0]["content"])
    await page.keyboard.press("Control+Enter")
    await page.get_by_label("Result of get_weather").wait_for()


async def ask(site, id, model="m"):
    question = {"model": model, "messages": QUESTION, "tools": TOOLS, "stream": True}
    await site.chat(**question, headers={"x-request-id": id})


async def main(folder, *, docs):
    folder.mkdir(parents=True, exist_ok=True)
    async with chromium() as browser:
        camera = Camera(browser, folder, docs)
        async with listening(*SCRIPTS, **MODELS, **ON) as site:
            url = url_of(site)
            await camera.shoot("first-run", url)
            await ask(site, "weather")
            await site.chat(model="qwen3-30b", headers={"x-request-id": "hello"})
            await ask(site, "failed", "mistral-small-24b")
            await ask(site, "unread")
            for name, path in PAGES.items():
                await camera.shoot(name, url + path)
            await camera.shoot("playground", f"{url}/playground", converse)
        async with listening(HELLO, auth={"keys": KEYS}) as site:
            await camera.shoot("key", url_of(site))


if __name__ == "__main__":
    docs = sys.argv[1:] == ["--docs"]
    given = [ROOT / "docs/images"] if docs else [Path(name) for name in sys.argv[1:]]
    asyncio.run(main(*given or [ROOT / "build/screenshots"], docs=docs))
