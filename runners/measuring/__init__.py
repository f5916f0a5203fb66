"""From a plan to a trace: which runs are pending, their ranks started and watched, and gathered.

In: an `Experiment`. Out: a trace on disk, written whole.
"""
