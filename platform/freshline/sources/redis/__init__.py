"""Redis and Valkey, asked for the rows of keys."""
