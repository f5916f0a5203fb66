"""What each mode of a topic holds, as an author writes it: one module a mode."""
