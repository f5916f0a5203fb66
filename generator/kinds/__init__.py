"""Kinds of pages, a folder each, whose `kind.py` says what it adds."""
