"""The command `gateway`, in a process with short intervals, which relies on notifications.

python eager_gateway.py OPTIONS serve --config gateway.yaml

OPTIONS: JSON.

lease: seconds.
looks: seconds between two checks of a log, if the database sends notifications.
statements: a file that gets a line per statement.
"""

import json
import sys
from functools import partial
from pathlib import Path

from sqlalchemy import Engine, event

from gateway.cli import main
from gateway.server.batches import batch_manager
from gateway.server.jobs import job_manager
from gateway.server.jobs.log_writer import SECONDS, Lease

options = json.loads(sys.argv.pop(1))


def executing(_, __, statement, *___):
    """Write a statement to the file."""
    with Path(options["statements"]).open("a", encoding="ascii") as file:
        file.write(" ".join(statement.split()) + "\n")


if "statements" in options:
    event.listen(Engine, "before_cursor_execute", executing)
for manager in (job_manager, batch_manager):
    manager._HELD, manager._ORPHANS = 0.1, 1
    manager.Lease = partial(Lease, seconds=options.get("lease", SECONDS))
job_manager._SELDOM = options.get("looks", 600)
main.main()
