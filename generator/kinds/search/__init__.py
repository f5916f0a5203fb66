"""The search: its index, and what finds in it."""
