"""Create the table of API keys."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the table and its index."""
    op.create_table(
        "api_keys",
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("api_keys_by_version", "api_keys", ["version"])
