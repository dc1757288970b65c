"""A service of somebody as a sink: batches of changes, posted in order."""
