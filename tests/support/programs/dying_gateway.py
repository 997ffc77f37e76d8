"""The command `gateway`, in a process that kills itself while it stores its first answer.

python dying_gateway.py POINT serve --config gateway.yaml

POINT: the beginning of the statement before which it dies, COMMIT, or COMMITTED for right behind that.
"""

import os
import signal
import sys

from sqlalchemy import Engine, Pool, event

from gateway.cli import main

_ANSWERS = ("INSERT INTO responses", "INSERT INTO completions")


class Watch:
    def __init__(self, point):
        self.point, self.stored = point, False

    def executing(self, _, __, statement, *___):
        self.stored = self.stored or statement.startswith(_ANSWERS)
        self.passes(statement[: len(self.point)])

    def committing(self, _):
        if self.stored:
            self.passes("COMMIT")

    def returned(self, *_):
        """A connection, after its transaction."""
        if self.stored:
            self.passes("COMMITTED")

    def passes(self, point):
        if point == self.point:
            os.kill(os.getpid(), signal.SIGKILL)


watch = Watch(sys.argv.pop(1))
event.listen(Engine, "before_cursor_execute", watch.executing)
event.listen(Engine, "commit", watch.committing)
event.listen(Pool, "checkin", watch.returned)
main.main()
