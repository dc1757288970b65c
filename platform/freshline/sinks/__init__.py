"""Systems that rows go out to."""
