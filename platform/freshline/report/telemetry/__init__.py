"""Events for the systems of others after each refresh: lineage and traces."""
