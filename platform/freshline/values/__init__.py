"""Frozen values that every room may import: names, options, specs and the queries in them, settings."""
