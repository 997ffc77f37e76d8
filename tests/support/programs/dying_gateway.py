"""The command `gateway`, in a process that kills itself while it stores its first response.

python dying_gateway.py POINT serve --config gateway.yaml

POINT: the beginning of a statement, to die before it; COMMIT; or COMMITTED, to die right after the commit.
"""

import os
import signal
import sys
from functools import partial

from sqlalchemy import Engine, Pool, event

from gateway.cli import main
from gateway.store import direct

_ANSWERS = ("INSERT INTO responses", "INSERT INTO completions")


class Watch:
    """Kill the process at its point."""

    def __init__(self, point):
        self.point, self.stored = point, False

    def executing(self, _, __, statement, *___):
        """Note a statement, before it is sent."""
        self.stored = self.stored or statement.startswith(_ANSWERS)
        self.passes(statement[: len(self.point)])

    def committing(self, _):
        """Note the commit of a transaction."""
        if self.stored:
            self.passes("COMMIT")

    def returned(self, *_):
        """Note the return of a connection to the pool, after its transaction."""
        if self.stored:
            self.passes("COMMITTED")

    def opened(self, open, *arguments):
        """Return a connection that SQLAlchemy does not use, watched."""
        connection = open(*arguments)
        connection.set_trace_callback(self.traced)
        return connection

    def traced(self, statement):
        """Note a statement of such a connection."""
        if statement == "COMMIT":
            self.committing(None)
        else:
            self.executing(None, None, statement)

    def done(self, run, *arguments):
        """Run a transaction of such a connection, and note its end."""
        result = run(*arguments)
        self.returned()
        return result

    def passes(self, point):
        """Kill the process if this is its point."""
        if point == self.point:
            os.kill(os.getpid(), signal.SIGKILL)


watch = Watch(sys.argv.pop(1))
direct._opened = partial(watch.opened, direct._opened)
direct._transaction = partial(watch.done, direct._transaction)
event.listen(Engine, "before_cursor_execute", watch.executing)
event.listen(Engine, "commit", watch.committing)
event.listen(Pool, "checkin", watch.returned)
main.main()
