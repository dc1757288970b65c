"""What leaves for the systems of others after each refresh: lineage events and traces."""
