"""Charts and diagrams: which values a figure shows, and their drawing as SVG.

In: a figure as an author names it, and the values behind it. Out: markup that fits two widths, with
a source behind each mark. `drawings/` knows numbers and words only.
"""
