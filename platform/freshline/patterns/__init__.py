"""Patterns over rows in an order: what PATTERN says, as values, and the search for matches.

Nothing here knows of tables, of SQL beyond the words of PATTERN, or of Spark. Declarations are read with it, and the
engine searches with it.
"""
