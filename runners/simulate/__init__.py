"""One rank of many, without data and without waiting: what it allocates, sends and computes.

In: operations of a rank. Out: tensor bytes by class and phase, each collective with its payload and
its axis, the FLOPs of each phase (`meter.py`), and what CUDA's allocator would reserve. Code runs
unchanged, as rank r of n, over a process group that sends nothing and with tensors that hold
nothing. No measured trace's digest covers it; a plan's does.
"""
