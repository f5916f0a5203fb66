"""Experiments without ranks: a function of settings, in a process of its own, records measures.

In: files of experiments that declare their runs as `Plain` (`experiment.py`). Out: traces like
those of ranks, but for what only ranks and torch have. No torch.
"""
