"""Write lines for people and pipes."""

import sys


def say(line: str) -> None:
    """Write a line at once, also where output is buffered."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
