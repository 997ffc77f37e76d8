"""Run all rows, print the table and write the page.  Status 1: something is not as it has to be."""

import asyncio
import logging
import sys

import uvloop

from faults import page
from support.terminal import say


async def main():
    logging.disable()  # what goes wrong here is meant to
    parts, wrong = [], []
    say("\n".join(page.header()))
    for title in page.SECTIONS:
        lines, failed = await page.section(title, say)
        parts += lines
        wrong += failed
    page.FILE.write_text("\n".join((page.HEAD, "", *parts)).rstrip() + "\n", "utf-8")
    for failure in wrong:
        say(f"FAIL {failure}")
    return bool(wrong)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main()))
