"""What an experiment declares, and the closed forms and models that plans share. No torch.

In: files of `runners/experiments/`. Out: an `Experiment` with its `Declaration`s.
"""
