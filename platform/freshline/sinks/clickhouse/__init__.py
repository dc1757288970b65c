"""A table of ClickHouse as a sink."""
