"""From a plan to rows: Spark computes what is to be written, and writes nothing."""
