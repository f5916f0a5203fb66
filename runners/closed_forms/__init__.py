"""What settings alone say of a run: work, memory, and the interval between checkpoints. No torch.

In: numbers, or the settings that experiments share. Out: numbers, which pages call *computed*.
"""
