"""A changed declaration begins, and older rows stay."""
