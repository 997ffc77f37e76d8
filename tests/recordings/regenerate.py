"""Write the goldens anew, for the diff to be read:  python tests/recordings/regenerate.py"""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from replay import SERVERS, golden_file, goldens, written  # noqa: E402 - a script finds its neighbours itself

for server in SERVERS:
    golden_file(server).write_text(written(goldens(server)))
