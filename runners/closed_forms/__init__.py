"""What settings alone say of a run: work, memory, and the interval between checkpoints. No torch.

In: numbers. Out: numbers, which pages call *computed*.
"""
