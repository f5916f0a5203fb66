"""The command of the planner, and what it computes again."""

from proofbook.runners.system.kinds import Kind, PageKind

KIND = Kind(
    commands={"plan": ".command"},
    usage="""\
    python -m runners plan for MODEL           which strategies fit a model on so many devices, and
                                               which to try first, in a second
""",
    needs_torch=False,
    again=".again",
    slots={
        "former": "proofbook.generator.pages.views.plans:former",
        "name of a plan": "proofbook.generator.pages.views.plans:named",
    },
    sheets="proofbook.generator.pages.views.plans:sheets",
    pages={
        "plan": PageKind("proofbook.generator.pages.views.plans:plan", 0.3),
        "planned": PageKind("proofbook.generator.pages.views.plans:planned", 0.05),
        "published": PageKind("proofbook.generator.pages.views.published:published", 0.05),
    },
    scripts={"python+fits": "MemoryCalculator"},
    styles={"calculator": "MemoryCalculator"},
    spoken={"fits": "fits"},
    shared={"content/planner/plan.yml": ["plan"]},
    mistakes=".layouts_named:layout_errors",
)
