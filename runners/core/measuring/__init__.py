"""From a declaration to a trace: ranks started, watched and gathered.

In: an `Experiment`. Out: a trace on disk, written whole.
"""
