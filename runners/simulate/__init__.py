"""One rank of many, without data and without waiting: what every run allocates, sends and computes.

In: a run as its experiment declares it. Out: a `RankLog` (`log.py`): the peak of tensor bytes
by class and phase, each collective with its payload and its axis, and the FLOPs of each phase. A
strategy runs unchanged, as rank r of n, over a process group that sends nothing and with tensors
that hold nothing. No measured trace's digest covers it; a plan's does.
"""
