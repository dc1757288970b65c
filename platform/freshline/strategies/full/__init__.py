"""Everything is computed again."""
