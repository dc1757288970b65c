"""From records of a source to rows of its log table: batches, duplicates, rejected records, each batch one commit."""
