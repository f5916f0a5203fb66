"""The lessons of a topic, a module for those of each mode."""
