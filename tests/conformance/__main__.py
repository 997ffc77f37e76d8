"""Run the parts that are named, all by default, and write the page.

Status 1: something fails, or a part that is named could not be run.
"""

import datetime
import sys

from conformance import page
from conformance.parts import PARTS, Missing
from support.terminal import say


def main(names):
    if unknown := [name for name in names if name not in PARTS]:
        sys.exit(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    missed = [name for name in names or PARTS if not ran(name)]
    results = page.read()
    page.FILE.write_text(page.page(results), "utf-8")
    failed = [*page.failures(results)]
    for failure in failed:
        say(f"FAIL {failure}")
    sys.exit(bool(failed or (names and missed)))


def ran(name):
    """True if there are new results; else the last ones stay, with their date."""
    began = datetime.datetime.now(datetime.UTC).date()
    say(f"== {name}")
    try:
        page.write(name, {"date": str(began), **PARTS[name]()})
    except Missing as error:
        say(f"{name} is left as it was: {error}")
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
