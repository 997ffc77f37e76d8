"""Run the missing migrations, on the connection and in the transaction of the caller (alembic's entry point)."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
