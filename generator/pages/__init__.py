"""Pages: views prepare what a template shows, templates write Markdown, the press keeps the rest.

In: a `Book` with its evidence. Out: the Markdown of each page by its path, printed again only where
something that it shows has changed.
"""
