"""What one rank does: its process, what a strategy holds of it, and what it records.

In: a `Declaration` and a strategy. Out: a `RankOutcome`, as JSON, for the launcher.
"""
