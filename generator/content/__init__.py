"""What people write: YAML with its locations, one model a mode, and the machines' folders.

In: `content/`, its lessons, questions, claims and traces. Out: a `Book`, or every mistake with its
file, line and column. Nothing here evaluates an expression.
"""
