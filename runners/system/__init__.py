"""Where a book lies, and how a command stops, waits and reports errors.

In: nothing of ours. Out: functions that other rooms call. No torch.
"""
