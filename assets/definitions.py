"""What Dagster loads: every table and source that is declared beside this file."""

from pathlib import Path

from freshline.dagster import FreshlineProject, build_definitions

defs = build_definitions(FreshlineProject(Path(__file__).resolve().parent.parent))
