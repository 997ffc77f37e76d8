"""Add the usage of keys and models by windows of time."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "uses",
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("start", sa.BigInteger, primary_key=True),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("valid_until", sa.BigInteger, nullable=False),
    )
    op.create_index("uses_by_validity", "uses", ["valid_until"])
