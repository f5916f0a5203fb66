"""The programs that pages print: each is executed as it stands, and its outcome recorded.

A page that shows code shows a file of `content/topics/*/code/`; this experiment runs every such
file in ranks, as `torchrun` would (`runners/training/executed.py`). How many ranks, under which
budget and to which end, the file says itself (`runners/traces/programs.py`). A program that leaves
`step_seconds` or `model` behind has its step times, or its parameters' digest, recorded; so are
numbers that its ranks gathered as `report`, one dict a rank.

    python -m runners run listings
"""

from proofbook.runners.experiments._programs import declarations
from proofbook.runners.training.executed import program as program  # the strategy of every run

QUESTION = "What do the programs that the lessons show do when they run?"
RUNS = declarations("content/topics/*/code/*.py")  # the digest covers them by this pattern
