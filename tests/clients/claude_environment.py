"""The environment of Claude Code in a home of its own: it reaches nothing but this machine."""

import os
from pathlib import Path

NOWHERE = "http://127.0.0.1:9"  # the port that discards; no server listens there
ALONE = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "NO_PROXY": "127.0.0.1",
}


def environment(home: Path, url: str) -> dict[str, str]:
    """Return the variables; url: the gateway, without `/v1`."""
    gateway = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "none"}
    return {"PATH": os.environ["PATH"], "HOME": str(home), **gateway, **ALONE}
