"""Affected keys: which rows of a result may differ, told from the query's structure and the changes of its inputs."""
