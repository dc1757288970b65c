"""What Dagster loads: every table and source that is declared beside this file."""

from pathlib import Path

from freshline.dagster import definitions

defs = definitions(Path(__file__).resolve().parent.parent)
