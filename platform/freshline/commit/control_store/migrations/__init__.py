"""Alembic's steps from every format of the control store to the next."""
