"""Values on a page: each number with its source, rounded for people.

In: an `Evidence`. Out: a `Folio`, which prints values, marks and links for one page.
"""
