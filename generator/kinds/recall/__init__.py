"""The questions of a topic again, each when it is due."""
