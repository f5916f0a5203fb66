"""Questions: keys bound to claims, and what a reader sees of an item.

In: items as authors write them, and the evidence. Out: keys, answers with their explanations, and
mistakes in what the runs do not bear out.
"""
