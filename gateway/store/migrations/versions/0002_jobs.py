"""Create the tables of jobs and of their events."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_ID = sa.String(128)


def upgrade() -> None:
    """Create the tables and indexes."""
    _jobs()
    _events()


def _of(owner: str) -> sa.ForeignKey:
    return sa.ForeignKey(owner, ondelete="CASCADE")


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", _ID, _of("responses.id"), primary_key=True),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("holder", _ID),
        sa.Column("held_until", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("cancelled", sa.Boolean, nullable=False),
        sa.Column("wanted_until", sa.BigInteger),
    )
    op.create_index("jobs_by_lease", "jobs", ["held_until"])
    op.create_index("jobs_by_holder", "jobs", ["holder"])
    op.create_table(
        "requests",
        sa.Column("job", _ID, _of("jobs.id"), primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("response", _ID, _of("responses.id"), primary_key=True),
        sa.Column("first", sa.Integer, primary_key=True),
        sa.Column("last", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("packed", sa.Boolean, nullable=False),
        sa.Column("valid_until", sa.BigInteger),
    )
    op.create_index("events_by_validity", "events", ["valid_until"])
