"""Definitions for Dagster: all declared tables and sources beside this file, and resources for your own assets."""

from pathlib import Path

from dagster import Definitions

from freshline.dagster import FreshlineProject, FreshlineResource, SparkResource, build_definitions

ROOT = Path(__file__).resolve().parent.parent

defs = Definitions.merge(
    build_definitions(FreshlineProject(ROOT)),
    Definitions(
        resources={"freshline": FreshlineResource(project=str(ROOT)), "spark": SparkResource(project=str(ROOT))}
    ),
)
