"""What stands beside the book, each in a folder of its own, whose `kind.py` says what it adds."""
