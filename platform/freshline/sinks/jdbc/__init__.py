"""A database as a sink: rows and position in one transaction."""
