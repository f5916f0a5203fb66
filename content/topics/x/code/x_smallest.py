"""The smallest program that shows what this topic is about.

torchrun --nproc-per-node 1 x_smallest.py
"""

parts = [1, 2]
total = sum(parts)
print(total)
