"""Partitions are computed again and replaced."""
