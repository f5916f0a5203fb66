"""The command of the planner, and what it computes again."""

from proofbook.runners.system.kinds import Kind

KIND = Kind(
    commands={"plan": ".command"},
    usage="""\
    python -m runners plan for MODEL           which strategies fit a model on so many devices, and
                                               which to try first, in a second
""",
    needs_torch=False,
    again=".again",
    slots={"name of a plan": "proofbook.generator.pages.views.plans:named"},
    mistakes="proofbook.generator.checks.lesson_checks:layout_errors",
)
