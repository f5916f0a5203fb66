"""What an experiment declares: runs and their settings. No torch.

In: files of `runners/experiments/`. Out: an `Experiment` with its `Declaration`s.
"""
