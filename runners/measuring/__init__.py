"""From a declaration to a trace: what is pending; ranks started, watched and gathered.

In: an `Experiment`. Out: a trace on disk, written whole.
"""
