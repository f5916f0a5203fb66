"""The home page, the path, and the page of a topic."""
