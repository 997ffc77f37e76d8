"""Create the table of usage counts."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table and its index."""
    op.create_table(
        "uses",
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("start", sa.BigInteger, primary_key=True),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("valid_until", sa.BigInteger, nullable=False),
    )
    op.create_index("uses_by_validity", "uses", ["valid_until"])
