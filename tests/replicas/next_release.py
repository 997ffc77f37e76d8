"""The release after this one: its code, with a migration that adds to tables which this one uses."""

import shutil
from pathlib import Path

import gateway
from gateway.store import migrations

REVISION = "next"
_MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "{revision}", "{newest}"


def upgrade() -> None:
    op.create_table("additions", sa.Column("id", sa.String(128), sa.ForeignKey("responses.id"), primary_key=True))
    op.add_column("responses", sa.Column("addition", sa.String(128)))
    op.add_column("jobs", sa.Column("addition", sa.Integer, nullable=False, server_default="0"))
"""


def write_next_release(code):
    """Write the code to a new folder, and return the folder."""
    package = Path(gateway.__file__).parent
    shutil.copytree(package, code / "gateway", ignore=shutil.ignore_patterns("__pycache__"))
    folder = code / "gateway" / Path(migrations.__file__).parent.relative_to(package) / "versions"
    newest = max(path.name.partition("_")[0] for path in folder.glob("*.py"))
    (folder / "next.py").write_text(_MIGRATION.format(revision=REVISION, newest=newest))
    return code
