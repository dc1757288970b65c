"""Delta tables of others, which are read in place."""
