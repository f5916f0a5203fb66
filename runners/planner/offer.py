"""The command of the planner, and what it computes again."""

from proofbook.runners.system.offers import Offer

OFFER = Offer(
    commands={"plan": "proofbook.runners.planner.command"},
    usage="""\
    python -m runners plan for MODEL           which strategies fit a model on so many devices, and
                                               which to try first, in a second
""",
    needs_torch=False,
    again="proofbook.runners.planner.again",
)
