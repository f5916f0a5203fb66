"""A session of measuring: what is pending, how far it is, and what its nodes tell each other.

The core calls this room, but nothing here can change a value that a run records.
"""
