"""Write anew what every server is asked, for the diff to be read:  python tests/upstream/regenerate.py

A new case is one with nothing but what its client asks.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from asked import BY_FIELD, WHOLE, cases, golden, written  # noqa: E402 - a script finds its neighbours itself

for file in (*WHOLE, *BY_FIELD):
    told = {name: golden(file, name) for name in cases(file)}
    file.write_text(written([*told.values()] if file in BY_FIELD else told) + "\n", "utf-8")
