"""Pages: views prepare what a template shows, templates write Markdown, the press keeps the rest.

In: a `Book` with its evidence. Out: the Markdown of each page by its path. A view gives a template
a `View`: names, and what stands under each. While an author edits, only the pages of the edited
files are printed again.
"""
