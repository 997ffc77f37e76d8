"""Create the tables of files, of uploads and of their bytes."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_ID = sa.String(128)


def upgrade() -> None:
    """Create the tables and indexes."""
    _files()
    _uploads()
    _blobs()


def _of(owner: str) -> sa.ForeignKey:
    return sa.ForeignKey(owner, ondelete="CASCADE")


def _files() -> None:
    op.create_table(
        "files",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("purpose", _ID, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("name", sa.LargeBinary, nullable=False),
    )
    op.create_index("files_by_age", "files", ["tenant", "created_at", "id"])
    op.create_index("files_by_expiry", "files", ["expires_at"])


def _uploads() -> None:
    op.create_table(
        "uploads",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("uploads_by_expiry", "uploads", ["expires_at"])


def _blobs() -> None:
    op.create_table(
        "blobs",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("file", _ID, _of("files.id")),
        sa.Column("place", sa.Integer, nullable=False),
        sa.Column("upload", _ID, _of("uploads.id")),
        sa.Column("valid_until", sa.BigInteger),
    )
    op.create_index("blobs_by_tenant", "blobs", ["tenant"])
    op.create_index("blobs_by_file", "blobs", ["file", "place"])
    op.create_index("blobs_by_upload", "blobs", ["upload"])
    op.create_index("blobs_by_validity", "blobs", ["valid_until"])
    op.create_table(
        "chunks",
        sa.Column("blob", _ID, _of("blobs.id"), primary_key=True),
        sa.Column("place", sa.Integer, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
