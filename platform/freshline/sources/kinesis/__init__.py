"""Streams of Kinesis: shards by sequence numbers, a shard after those that it was split or merged from."""
