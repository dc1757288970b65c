"""Rows that came are folded into the stored rows of their keys."""
