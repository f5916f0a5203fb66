"""From Markdown to a site: the MkDocs plugin, files on disk, the search.

In: printed pages. Out: `site/`. Only `plugin.py` knows MkDocs.
"""
