"""What a trace is: its records, its files, the code and the machine that made it, and comparisons.

In: what ranks recorded, and JSON files. Out: checked models. The generator reads this room, and
of others `declared`, `planner.answers` and `system`; none of them needs torch.
"""
