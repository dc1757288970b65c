"""Reads of tables: one version, the changes between two, what has not arrived yet, and SQL over all of them."""
