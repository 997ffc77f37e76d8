"""Make a picture of each page, in both themes, on a desktop and on a phone.

python -m browser.screenshots [FOLDER]        writes NAME-THEME-WIDTH.png; default: build/screenshots
"""

import asyncio
import json
import sys
from itertools import product
from pathlib import Path

from playwright.async_api import expect

from browser.chromium import DESKTOP, PHONE, chromium, page_of
from browser.inspector import TOOLS, WEATHER
from browser.overview import KEYS, ON, url_of
from support.app import listening
from support.paths import ROOT
from support.upstream import HELLO, stream, whole

MODELS = {
    "model": {"backends": ["up"], "format": "hermes_json"},
    "more_models": {"qwen3-30b": {"backends": ["up"]}, "mistral-small-24b": {"backends": ["up"]}},
    "more_backends": {"laptop": {"url": "http://127.0.0.1:1", "kind": "ollama"}},
}
SCRIPTS = [stream(*WEATHER), HELLO, whole({"error": {"message": "CUDA error: out of memory"}}, 500), stream(*WEATHER)]
PAGES = {"overview": "/", "inspector": "/inspector", "exchange": "/inspector?id=weather", "docs": "/docs"}


async def shoot(browser, folder, name, address, prepare=None):
    """Write the pictures of one page.  prepare(page): brings it into the state to be shown."""
    for theme, size in product(("light", "dark"), (DESKTOP, PHONE)):
        async with page_of(browser, size, color_scheme=theme) as page:
            await page.goto(address)
            if prepare:
                await prepare(page)
            await page.wait_for_load_state("networkidle")
            await page.screenshot(path=folder / f"{name}-{theme}-{size['width']}.png", full_page=True)


async def converse(page):
    await expect(page.get_by_label("Model")).to_have_value("m")
    await page.get_by_label("System prompt").fill("Answer in one sentence.")
    await page.get_by_label("Tools").fill(json.dumps(TOOLS, indent=2))
    await page.locator("#message").fill("How is the weather in Oslo?")
    await page.keyboard.press("Control+Enter")
    await page.get_by_label("Result of get_weather").wait_for()


async def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    async with chromium() as browser:
        async with listening(*SCRIPTS, **MODELS, **ON) as site:
            url = url_of(site)
            await shoot(browser, folder, "first-run", url)
            question = [{"role": "user", "content": "How is the weather in Oslo?"}]
            await site.chat(messages=question, tools=TOOLS, stream=True, headers={"x-request-id": "weather"})
            await site.chat(model="qwen3-30b")
            await site.chat(model="mistral-small-24b")
            for name, path in PAGES.items():
                await shoot(browser, folder, name, url + path)
            await shoot(browser, folder, "playground", f"{url}/playground", converse)
        async with listening(HELLO, auth={"keys": KEYS}) as site:
            await shoot(browser, folder, "key", url_of(site))


if __name__ == "__main__":
    asyncio.run(main(Path(*sys.argv[1:] or [ROOT / "build/screenshots"])))
