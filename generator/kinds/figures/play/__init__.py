"""Figures that readers operate: the states that runs have, and what each state shows of its runs.

In: a figure of kind `play` and its runs. Out: controls, a drawing of every state, a table of all.
`figures/play/states.py` reads the states off the runs, the views draw them, and `frame` puts both
on a page.
"""
