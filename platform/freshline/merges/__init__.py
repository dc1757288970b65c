"""Merges that come with freshline: how the rows of one key become one row."""
