"""Create the first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ID = sa.String(128)


def upgrade() -> None:
    """Create the tables and indexes."""
    _threads()
    _responses_and_conversations()
    _completions()
    _keys_and_thoughts()


def _of(owner: str) -> sa.ForeignKey:
    return sa.ForeignKey(owner, ondelete="CASCADE")


def _threads() -> None:
    op.create_table(
        "threads",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("parent", _ID),
        sa.Column("parent_end", sa.Integer),
        sa.Column("length", sa.Integer, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.BigInteger, nullable=False),
    )
    op.create_index("threads_by_use", "threads", ["used_at"])
    op.create_index("threads_by_parent", "threads", ["parent"])
    op.create_table(
        "items",
        sa.Column("thread", _ID, _of("threads.id"), primary_key=True),
        sa.Column("place", sa.Integer, primary_key=True),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("id", _ID),
        sa.Column("body", sa.LargeBinary),
    )
    op.create_index("items_by_id", "items", ["tenant", "id", "thread"])


def _responses_and_conversations() -> None:
    op.create_table(
        "responses",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("thread", _ID, _of("threads.id"), nullable=False),
        sa.Column("first", sa.Integer, nullable=False),
        sa.Column("output", sa.Integer, nullable=False),
        sa.Column("end", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("responses_by_thread", "responses", ["thread"])
    op.create_table(
        "conversations",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("thread", _ID, _of("threads.id"), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("metadata", sa.LargeBinary, nullable=False),
        sa.Column("holder", _ID),
        sa.Column("held_until", sa.BigInteger, nullable=False),
    )
    op.create_index("conversations_by_thread", "conversations", ["thread"])


def _completions() -> None:
    op.create_table(
        "completions",
        sa.Column("id", _ID, _of("threads.id"), primary_key=True),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("model", _ID, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("completions_by_age", "completions", ["tenant", "created_at", "id"])
    op.create_table(
        "labels",
        sa.Column("completion", _ID, _of("completions.id"), primary_key=True),
        sa.Column("key", _ID, primary_key=True),
        sa.Column("value", _ID, nullable=False),
    )


def _keys_and_thoughts() -> None:
    op.create_table(
        "keys",
        sa.Column("tenant", _ID, primary_key=True),
        sa.Column("key", _ID, primary_key=True),
        sa.Column("digest", _ID, nullable=False),
        sa.Column("holder", _ID, nullable=False),
        sa.Column("held_until", sa.BigInteger, nullable=False),
        sa.Column("valid_until", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("type", sa.String(256)),
        sa.Column("body", sa.LargeBinary),
    )
    op.create_index("keys_by_validity", "keys", ["valid_until"])
    op.create_table(
        "thoughts",
        sa.Column("tenant", _ID, primary_key=True),
        sa.Column("key", _ID, primary_key=True),
        sa.Column("text", sa.LargeBinary, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.BigInteger, nullable=False),
    )
    op.create_index("thoughts_by_use", "thoughts", ["used_at"])
