"""Dagster's webserver behind a guard: `python -m freshline.orchestrate.webserver`, which `freshline up` starts."""
