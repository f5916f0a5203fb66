"""One rank: its process, the object that a strategy is called with, and its records.

In: a `Declaration` and a strategy. Out: a `RankOutcome`, as JSON, for the launcher.
"""
