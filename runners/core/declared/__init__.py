"""The declarations of an experiment: runs, their settings, and the shapes of its networks. No torch.

In: files of `runners/experiments/`. Out: an `Experiment` with its `Declaration`s.
"""
