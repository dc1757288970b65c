"""The freshness board: how fresh every table is and was, as pages for people."""
