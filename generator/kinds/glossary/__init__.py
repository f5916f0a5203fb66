"""The words of the field."""
