"""Traces as files: whether one is stale, sound, or tolerably equal to another; and summaries.

In: records of `core/trace`, and JSON files. Out: checked models. The generator reads this room, and
of others `core/trace`, `core/declared`, `core/system`, `closed_forms` and `system`; none of them
needs torch.
"""
