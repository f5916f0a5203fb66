"""The commands of `python -m runners`, a file each; `plan` has a room of its own.

In: arguments. Out: lines on the terminal and an exit code.
"""
