"""What a measurement takes of the operating system: processes, folders, links, devices.

In: nothing of ours. Out: functions that other rooms call. Only `accelerator.py` needs torch.
"""
