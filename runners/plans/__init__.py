"""What an experiment declares: its runs, and the work that a step of each will be. No torch.

In: files of `runners/experiments/`. Out: an `Experiment` with its `RunPlan`s.
"""
