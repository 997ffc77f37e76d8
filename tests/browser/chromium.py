"""A browser, and pages in it that may not complain of anything."""

import os
import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import async_playwright, expect

from support.wait import DEADLINE

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
_MILLISECONDS = 1000 * DEADLINE
expect.set_options(timeout=_MILLISECONDS)


@asynccontextmanager
async def chromium():
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not path:
        pytest.fail("there is no Chromium: apt-get install chromium, or CHROMIUM=PATH")
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=path)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def page_of(browser, size=DESKTOP, **options):
    """A tab of somebody new.  `complaints`: what its console says of errors, what fails in it, what it asks people."""
    context = await browser.new_context(viewport=size, **options)
    context.set_default_timeout(_MILLISECONDS)
    page = await context.new_page()
    page.complaints = []
    page.on(
        "console",
        lambda message: page.complaints.append(message.text) if message.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("dialog", lambda dialog: page.complaints.append(dialog.message))
    try:
        yield page
    finally:
        await context.close()


async def picture(page, name):
    """To be looked at by people, where PICTURES names a folder."""
    if folder := os.environ.get("PICTURES"):
        await page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
