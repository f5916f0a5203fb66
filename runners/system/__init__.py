"""Where a book lies; how a command stops, waits and reports errors; files written whole.

In: nothing of ours. Out: functions that other rooms call. No torch.
"""
