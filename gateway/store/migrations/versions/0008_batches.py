"""Create the tables of batches and of their results."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_ID = sa.String(128)


def upgrade() -> None:
    """Create the tables and indexes."""
    op.create_table(
        "batches",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("holder", _ID),
        sa.Column("held_until", sa.BigInteger),
        sa.Column("valid_until", sa.BigInteger),
        sa.Column("completed", sa.Integer, nullable=False),
        sa.Column("failed", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("batches_by_age", "batches", ["tenant", "created_at", "id"])
    op.create_index("batches_by_lease", "batches", ["held_until"])
    op.create_index("batches_by_validity", "batches", ["valid_until"])
    op.create_table(
        "results",
        sa.Column("batch", _ID, sa.ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("place", sa.Integer, primary_key=True),
        sa.Column("ok", sa.Boolean, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
