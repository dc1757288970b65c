"""Files that land in a folder: listed, read line by line, and known again by name, size and time."""
