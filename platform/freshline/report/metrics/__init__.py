"""Metrics of an engine for Prometheus: from frozen figures to families of samples, and those to text."""
