"""What every trace's digest covers: an edit here makes all traces stale.

From a declaration to a trace: ranks started, watched, metered and gathered. Whatever one experiment
alone uses stands outside; `tests/test_architecture.py` holds both.
"""
