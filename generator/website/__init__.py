"""From Markdown to a site: the MkDocs plugin, files on disk, the archive.

In: printed pages. Out: `site/`. Only `plugin.py` knows MkDocs.
"""
