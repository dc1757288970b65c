"""Alerts (rule 16 of docs/rules.md): the troubles, the channels, and the watch, a process beside refreshes."""
