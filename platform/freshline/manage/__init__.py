"""Change what tables promise: the one code behind the SQL statements, the commands and the Python functions."""
