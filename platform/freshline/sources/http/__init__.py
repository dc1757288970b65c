"""Events that other programs post to the engine. Each post is a landing file, which is read as those of `files`."""
