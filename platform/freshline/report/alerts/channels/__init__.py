"""The channels through which alerts are told, each a small class with one method."""
