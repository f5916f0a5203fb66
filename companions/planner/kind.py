"""The planner: its command, what it computes again, and the pages of plans."""

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
        "layouts of decisions": ".pages.plans:of_decisions",
        "former": ".pages.plans:former",
        "name of a plan": ".pages.plans:named",
        "on home": ".pages.fits:on_home",
    },
    files={"planner/plan.yml": ".words:PlanFile"},
    folders=["planner"],
    reserved=["plan_"],
    traces=".in_book:traces",
    is_stale=".answers.published:is_stale",
    references=".in_book:published_references",
    known={"grid": ".in_book:grids"},
    sheets=".pages.plans:sheets",
    pages={
        "plan": PageKind(".pages.plans:plan", 0.3),
        "planned": PageKind(".pages.plans:planned", 0.05),
        "published": PageKind(".pages.published:published", 0.05),
    },
    scripts={"fits": "MemoryCalculator MemorySentence"},
    styles={"calculator": "MemoryCalculator", "sentence": "MemorySentence"},
    spoken={"fits": "fits"},
    shared={"content/planner/plan.yml": ["plan"]},
    mistakes={
        ".words:PlanFile": ".in_book:mistakes",
        "proofbook.generator.kinds.guide.words:GuideFile": ".layouts_named:mistakes",
        "proofbook.generator.kinds.lessons.words:WhyFile": ".layouts_named:mistakes",
    },
)
