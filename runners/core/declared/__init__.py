"""Declarations of experiments: runs, their settings, and the shapes of networks. No torch.

In: files of `runners/experiments/`. Out: an `Experiment` with its `Declaration`s.
"""
