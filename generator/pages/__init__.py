"""Pages: composed of typed elements, each printed by a macro; the press keeps the rest.

In: a `Book` with its evidence. Out: the Markdown of each page by its path, and what is known of it.
While an author edits, only the pages of the edited files are printed again.
"""
