"""The strategy of sinks."""
