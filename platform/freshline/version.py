"""The version of freshline, which every folder may read."""

__version__ = "0.1.0"
