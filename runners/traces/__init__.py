"""What a trace is: its records, its files, the code and the machine that made it, and comparisons.

In: what ranks recorded, and JSON files. Out: checked models. The generator reads this room and, for
its commands, how a signal ends one; nothing here needs torch.
"""
