"""Topics of Kafka: rows and the position in one transaction."""
