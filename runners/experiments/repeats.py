"""The short programs of the retracted page: each repeats, by itself, what refutes or confirms it.

A sentence that people read stands on `retracted.html` beside a program of at most twenty lines from
`content/retracted/`; this experiment runs every such file in ranks, as `torchrun` would, and what
it printed stands on the page. A reader copies the command and sees the same.

    python -m runners run repeats --full
"""

from proofbook.runners.experiments._programs import declarations
from proofbook.runners.training.executed import program as program  # the strategy of every run

QUESTION = "What does a program of twenty lines show about sentences that many people read?"
RUNS = declarations("content/retracted/*.py")  # the digest covers them by this pattern
