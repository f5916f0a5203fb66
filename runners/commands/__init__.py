"""What `python -m runners` does, a file for each command that is more than a few lines.

In: arguments. Out: lines on the terminal and an exit code.
"""
