"""Tables of Postgres, read by logical decoding."""
