"""From rows to a version: one fenced Delta commit with its receipt, and reading both back."""
