"""The command of labs."""

from proofbook.runners.system.offers import Offer

OFFER = Offer(
    commands={"lab": "proofbook.runners.labs.command"},
    usage="""\
    python -m runners lab [NAME]               write a technique, and have it graded
""",
    stopped="your file is as you saved it",
)
