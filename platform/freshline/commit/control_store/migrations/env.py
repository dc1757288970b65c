"""The file that Alembic runs: the steps, on the connection and in the transaction that the control store hands in."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table="freshline_migration",
    transactional_ddl=True,
)
context.run_migrations()
