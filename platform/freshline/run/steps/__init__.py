"""What each kind of step writes, and by which rule: a module a kind, chosen by `run.prepare`."""
