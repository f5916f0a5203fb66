"""The commands of `python -m runners`, a file each; `simulate` and `plan` have rooms of their own.

In: arguments. Out: lines on the terminal and an exit code.
"""
