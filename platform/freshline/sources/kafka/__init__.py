"""Topics of Kafka: read by ranges of offsets that are fixed before reading begins."""
