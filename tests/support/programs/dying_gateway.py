"""The command `gateway`, in a process that kills itself while it stores its first response.

python dying_gateway.py POINT serve --config gateway.yaml

POINT: the beginning of a statement, to die before it; COMMIT; or COMMITTED, to die right after the commit.
"""

import os
import signal
import sys
from functools import partial
from threading import get_ident

from sqlalchemy import Engine, Pool, event

from gateway.cli import main
from gateway.store import direct

_ANSWERS = ("INSERT INTO responses", "INSERT INTO completions")


class Watch:
    """Kill the process at its point.  Other transactions run beside the one that stores the response.

    storing: the connection that stores it, or the thread of one that SQLAlchemy does not use.
    """

    def __init__(self, point):
        self.point, self.storing = point, None

    def executing(self, connection, _, statement, *__):
        """Note a statement, before it is sent."""
        self.sends(connection.connection.dbapi_connection, statement)

    def committing(self, connection):
        """Note the commit of a transaction."""
        self.commits(connection.connection.dbapi_connection)

    def returned(self, connection, _):
        """Note the return of a connection to the pool, after its transaction."""
        self.ends(connection)

    def opened(self, open, *arguments):
        """Return a connection that SQLAlchemy does not use, watched."""
        connection = open(*arguments)
        connection.set_trace_callback(self.traced)
        return connection

    def traced(self, statement):
        """Note a statement of such a connection."""
        if statement == "COMMIT":
            self.commits(get_ident())
        else:
            self.sends(get_ident(), statement)

    def done(self, run, *arguments):
        """Run a transaction of such a connection, and note its end."""
        result = run(*arguments)
        self.ends(get_ident())
        return result

    def sends(self, by, statement):
        """Note a statement and the connection or thread that it is by."""
        if statement.startswith(_ANSWERS):
            self.storing = by
        self.passes(statement[: len(self.point)])

    def commits(self, by):
        """Note a commit, before it begins."""
        if self.storing == by:
            self.passes("COMMIT")

    def ends(self, by):
        """Note the end of a transaction."""
        if self.storing == by:
            self.passes("COMMITTED")

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
