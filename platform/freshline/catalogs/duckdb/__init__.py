"""The registrar `duckdb`: a file of views."""
