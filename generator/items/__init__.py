"""Questions: keys bound to claims, what a reader sees of an item, and what readers answered.

In: items as authors write them, and the evidence; or files that readers exported. Out: keys,
findings about the writing of items, and statistics.
"""
