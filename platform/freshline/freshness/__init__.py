"""How fresh tables are, how fresh they must be, and which are due: decided on values alone."""
