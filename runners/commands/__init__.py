"""The commands of `python -m runners`, a file each, and how `run` runs passes at once.

In: arguments. Out: lines on the terminal and an exit code.
"""
