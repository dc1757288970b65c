"""The command line: a door to the sentence. It asks, shows and ends; it decides nothing about tables."""
