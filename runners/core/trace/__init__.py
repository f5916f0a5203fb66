"""What a trace holds: its records, the machine that made it, and its measured values.

In: what ranks recorded. Out: checked models.
"""
