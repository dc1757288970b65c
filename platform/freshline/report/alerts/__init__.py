"""Alerts (rule 16): what is wrong, who is told, and the watch that does both apart from what refreshes."""
