"""Lessons: what each mode reads and shows."""

from proofbook.runners.system.kinds import Kind, PageKind

_MODES = "learn deep worked trace cost experiment try challenge recall why"
_LESSON = PageKind("", 1.0, links_terms=True)

KIND = Kind(
    files={f"topics/*/{mode}.yml": f".words:{mode.capitalize()}File" for mode in _MODES.split()},
    starts={"lesson": ".scaffold:start"},
    sheets=".lessons:sheets",
    mistakes={
        "proofbook.generator.content.lesson:LessonFile": ".lesson_checks:figure_mistakes",
        ".words:TraceFile": ".lesson_checks:trace_mistakes",
        ".words:TryFile": ".lesson_checks:try_mistakes",
        ".words:CostFile": ".lesson_checks:cost_mistakes",
        ".words:WhyFile": ".lesson_checks:why_mistakes",
    },
    slots={"way": ".ways:way", "groups": ".ways:GROUPS"},
    pages={
        "learn": _LESSON._replace(compose=".lessons:learn"),
        "deep": _LESSON._replace(compose=".deep:deep", boost=1.05, num_links=".deep:num_links"),
        "chain": _LESSON._replace(compose=".deep:chained", boost=1.05),
        "worked": _LESSON._replace(compose=".lessons:worked"),
        "trace": _LESSON._replace(compose=".stages:trace"),
        "cost": _LESSON._replace(compose=".costs:cost", boost=0.8),
        "why": _LESSON._replace(compose=".lessons:why"),
        "try": _LESSON._replace(compose=".trials:trials", boost=0.6),
        "challenge": _LESSON._replace(compose=".lessons:challenge", boost=0.6),
        "experiment": _LESSON._replace(compose=".lessons:experiment"),
        "summary": PageKind(".lessons:summary", 0.1, keeps_progress=False),
    },
    styles={"summary": "summary"},
)
