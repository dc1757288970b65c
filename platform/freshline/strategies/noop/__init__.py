"""Nothing is written but the position."""
