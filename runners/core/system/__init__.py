"""The operating system as measurements use it: processes, folders, links, devices.

In: nothing of ours. Out: functions that other rooms call. Only `accelerator.py` needs torch.
"""
