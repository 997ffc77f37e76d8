"""Soak, print a line per minute and the verdict.  Status 1: a bound is broken."""

import argparse
import sys

from soak.run import Soak, rounds
from support.terminal import say

# MB for each 10,000 answers, in the second half.  An hour with 1000 streams grew by 1.6, and less and less; a run of
# minutes still fills caches and pools of connections.
GROWTH, GROWTH_AT_FIRST, FIRST = 2.0, 5.0, 30


def main():
    parser = argparse.ArgumentParser(prog="soak")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--streams", type=int, default=1000, help="at a time")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between two pieces of an answer")
    options = parser.parse_args()
    [found] = rounds(Soak(options.minutes * 60, options.streams, options.workers, options.pause), 1, say)
    for outcome, count in found.load.ended.most_common():
        say(f"{count:>8} {outcome}")
    for what, count in found.load.unexpected.most_common(20):
        say(f"{count:>8} UNEXPECTED {what}")
    say(f"memory at rest {found.before.memory:.1f} → {found.after.memory:.1f} MB")
    say(f"memory in the second half {found.per_hour:+.1f} MB/h, {found.per_answers:+.2f} MB per 10,000 answers")
    say(f"descriptors at rest {found.before.descriptors} → {found.after.descriptors}")
    wrong = [*found.wrong()]
    most = GROWTH_AT_FIRST if options.minutes < FIRST else GROWTH
    if found.per_answers > most:
        wrong.append(f"memory grows by more than {most} MB per 10,000 answers")
    for one in wrong:
        say(f"FAIL {one}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
