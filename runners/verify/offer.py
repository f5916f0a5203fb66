"""The command of `verify`."""

from proofbook.runners.system.offers import Offer

OFFER = Offer(
    commands={"verify": "proofbook.runners.verify.command"},
    usage="""\
    python -m runners verify --ranks 4 train.py …
                                               is your script's update that of one process?
""",
    stopped="nothing was compared",
)
