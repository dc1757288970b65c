"""A table of a database, read by queries."""
