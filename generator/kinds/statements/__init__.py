"""Sentences that people read, tested."""
