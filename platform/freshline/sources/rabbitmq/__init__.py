"""Streams and queues of RabbitMQ: a stream by offsets, a queue by messages that are acknowledged after the commit."""
