"""The command of labs."""

from proofbook.runners.system.kinds import Kind

KIND = Kind(
    commands={"lab": ".command"},
    usage="""\
    python -m runners lab [NAME]               write a technique, and have it graded
""",
    stopped="your file is as you saved it",
)
