"""A program: read a page's HTML from standard input; write its title as one line, then its text as Markdown.

Its argument is the page's URL.  It runs in a process of its own, as a malicious page may take long or crash its reader.
It has `html-to-markdown`, and nothing of the gateway.
"""

import re
import sys
from html import unescape

from html_to_markdown import ConversionOptions, PreprocessingOptions, convert

_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{0,1000})", re.IGNORECASE)
_MAX = 1 << 20  # characters; the links of a short page may become long ones


def html_to_markdown(html: str, url: str) -> str:
    """Return the title as one line, then the visible text as Markdown with absolute links."""
    options = ConversionOptions(
        base_url=url,
        escape_asterisks=False,
        escape_underscores=False,
        extract_metadata=False,
        hidden_content="drop",
        preprocessing=PreprocessingOptions(enabled=True, remove_navigation=True, remove_forms=True),
        skip_images=True,
    )
    title = _TITLE.search(html)
    text = " ".join(unescape(title[1]).split()) if title else ""
    return f"{text}\n{(convert(html, options).content or '')[:_MAX]}"


if __name__ == "__main__":
    sys.stdout.buffer.write(html_to_markdown(sys.stdin.buffer.read().decode(), sys.argv[1]).encode())
