"""The channels through which alerts are sent, each a small class with one method."""
