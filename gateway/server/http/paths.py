"""Correct paths as clients write them: without `/v1`, with repeated slashes or a trailing one."""

import re
from collections.abc import Collection
from difflib import get_close_matches
from urllib.parse import quote

from starlette.types import Scope

from gateway.backends.pass_through import ALIASES

_SLASHES = re.compile("//+")
_API = "/v1/"
# Paths of Ollama's own API, with those of the gateway that do the same.
_OLLAMA = {
    "/api/chat": "/v1/chat/completions",
    "/api/generate": "/v1/chat/completions",
    "/api/embed": "/v1/embeddings",
    "/api/embeddings": "/v1/embeddings",
    "/api/tags": "/v1/models",
}
_MAX = 100  # characters of a path that are compared, in quadratic time


def roots(paths: Collection[str]) -> frozenset[str]:
    """Return the first segments of the API's paths, behind the version."""
    return frozenset(path.split("/")[2] for path in paths if path.startswith(_API))


def canonical(path: str, known: Collection[str]) -> str:
    """Return the intended path.  known: the first segments of the API's paths."""
    plain = _SLASHES.sub("/", f"/{path}").rstrip("/") or "/"
    return f"{_API}{plain[1:]}" if plain.split("/")[1] in known else ALIASES.get(plain, plain)


def corrected(scope: Scope, known: Collection[str]) -> Scope:
    """Return the scope of a request with the intended path."""
    path = canonical(scope["path"], known)
    return scope if path == scope["path"] else {**scope, "path": path, "raw_path": quote(path).encode()}


def nearest(path: str, paths: Collection[str]) -> str | None:
    """Return the path that is most like a path that does not exist: the shortest below it first; None if none is.

    A path of Ollama's own API has the path that does the same.
    """
    if path in _OLLAMA:
        return _OLLAMA[path]
    below = (one for one in paths if one.startswith(f"{path}/") and len(path) > len(_API))
    alike = get_close_matches(path[:_MAX], paths, n=1)
    return min(below, key=len, default=None) or next(iter(alike), None)
