"""From a version to those who should know: outcomes, lag, status."""
