"""The rules by which a query's result follows from changes of its inputs: append, partition, keys and algebra."""
