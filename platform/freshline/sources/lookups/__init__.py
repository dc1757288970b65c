"""Systems that are asked for the row of a key: clients, and the order in which many keys are asked."""
