"""The Dagster door: tables and sources as assets."""

from freshline.dagster.code_location import definitions

__all__ = ["definitions"]
