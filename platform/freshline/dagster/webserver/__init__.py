"""Dagster's webserver behind a guard: `python -m freshline.dagster.webserver`, which `freshline up` starts."""
