"""What the operating system gives and takes: processes, signals, limits, folders, links, devices.

In: nothing of ours. Out: functions that other rooms call. Only `accelerator.py` needs torch.
"""
