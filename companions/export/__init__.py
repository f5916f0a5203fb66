"""A way out: a book's questions for learning platforms and flash cards, and a class on paper.

In: a checked book. Out: files that other programs read (GIFT, QTI, Anki), and a folder that a
lecturer prints. Keys are those of the pages; what a format cannot hold is listed.
"""
