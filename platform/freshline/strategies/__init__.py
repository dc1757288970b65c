"""Ways to bring a table up to its inputs: a folder each, with the rule when it is right and what it writes."""
