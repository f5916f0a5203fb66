"""What measures a rank: its memory and collectives, its timeline, its link; and its budget.

A metered pass has its memory, its collectives and perhaps a timeline measured, a budgeted one has a
limit, and any pass may count what its link sends. In: the operations of a pass, and the kernel's or
the allocator's counters. Out: records of a trace.
"""
