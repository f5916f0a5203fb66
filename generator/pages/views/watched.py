"""A script that `verify` watched: what was found, tensor by tensor and rank by rank; its causes.

In: the trace of a watched script, and the table of causes. Out: a strip of tensors, and rows.
"""

from collections.abc import Callable, Mapping

from markupsafe import Markup

from generator.figures.drawings.strip import Bar, strip
from generator.figures.picture import DrawnState, both_widths
from generator.pages.view import Row, View, label
from generator.printing.folio import breakable
from generator.printing.sources import PYTHON
from runners.system.book import program
from runners.verify.report import Off, Parameter, Verdict, Watched
from runners.verify.report import causes as known_causes

MOST = 1e9  # times that a bar shows
# How the table is divided, in its order: what a reader sees of gradients, updates and losses.
GROUPS = {
    "ranks": "A factor that is the number of ranks",
    "microbatches": "A factor that is the number of microbatches",
    "own": "The gradient of one rank, or a part",
    "zero": "Zero, or lost",
    "before": "Something of the update before",
    "module": "Everything behind one module",
    "norms": "Normalizations only",
    "experts": "Experts only",
    "others": "Data, weights, updates, and how the script ends",
}
Sections = Callable[[str], Mapping[str, str]]


def causes(sections: Sections) -> list[View]:
    """`View`s of groups of known causes; `sections` gives addresses of lessons' headings."""
    rows = [
        View(id=f"cause-{key.replace(' ', '-').replace(chr(39), '')}", title=cause.title,
             usually=cause.usually, group=cause.group, section=cause.section,
             href=_place(cause.page, cause.section, sections))
        for key, cause in known_causes().items()
    ]  # fmt: skip
    return [
        View(title=title, rows=[row for row in rows if row.group == group])
        for group, title in GROUPS.items()
    ]


def findings(report: Verdict, sections: Sections) -> list[View]:
    """A `View` for each finding in `verify`'s report: its cause, and the book's section on it."""
    return [
        View(
            title=row.title, says=finding.says.splitlines(), usually=row.usually,
            section=row.section, href=_place(row.page, row.section, sections),
            others=[known_causes()[other] for other in finding.others],
            where=", ".join(filter(None, [
                finding.place, finding.parameter, finding.off and f"off by {finding.off}",
                "" if finding.rank is None else f"rank {finding.rank}",
                "" if finding.step is None else f"update {finding.step}",
            ])),
        )
        for finding in report.findings for row in [known_causes()[finding.cause]]
    ]  # fmt: skip


def command(watched: Watched) -> str:
    """The command that watches the script again."""
    return f"{program(PYTHON)} {watched.command}"


def in_words(watched: Watched) -> str:
    """Sentence with the number of tensors by state, and the first that differs."""
    states = [tensor.state for tensor in watched.tensors]
    counted = ", ".join(
        f"{states.count(state)} {word}"
        for state, word in (("agrees", "agree"), ("differs", "differ"), ("frozen", "frozen"),
                          ("not compared", "not compared"))
        if state in states
    )  # fmt: skip
    first = watched.first
    named = f" The first that differs: {first.name}." if first else ""
    return f"{len(states)} tensors in the order of the model: {counted}.{named}"


def drawing(watched: Watched, name: str) -> Markup:
    """SVG of a watched script's strip of tensors, for a wide page and for a phone."""
    bars = [
        Bar(tensor.name, f"{tensor.name}: {tensor.state}", _times(tensor))
        for tensor in watched.tensors
    ]
    drawn = both_widths(strip, bars, "what rounding allows")
    return DrawnState(drawn, in_words(watched)).svg(name, "The strip of tensors")


def tensors(watched: Watched) -> list[Row]:
    """A row for each tensor of a watched script: shape, errors, what is allowed, and verdict."""
    return [
        [
            Markup("<code>{}</code>").format(breakable(tensor.name)),
            label(" × ".join(map(str, tensor.shape)) or "scalar"),
            _error(tensor.gradient),
            label(_number(tensor.gradient.allowed) if tensor.gradient else "–"),
            _error(tensor.step),
            _state(tensor),
        ]
        for tensor in watched.tensors
    ]  # fmt: skip


def _times(tensor: Parameter) -> float | None:
    """The larger of both errors over what rounding allows; None where none was compared."""
    ratios = [
        MOST if off.error is None else min(MOST, off.error / (off.allowed or 1 / MOST))
        for off in (tensor.gradient, tensor.step)
        if off and not tensor.is_frozen
    ]
    return max(ratios, default=None)


def _state(tensor: Parameter) -> Markup:
    css = {"agrees": "pb-holds", "differs": "pb-does-not-hold"}.get(tensor.state, "")
    return Markup('<span class="pb-verdict {}">{}</span>').format(css, tensor.state)


def _error(off: Off | None) -> Markup:
    return label("–" if off is None else "not finite" if off.error is None else _number(off.error))


def _number(value: float) -> str:
    return f"{value:.2g}" if abs(value) < 1e-3 else f"{value:.4g}"


def _place(page: str, section: str, sections: Sections) -> str:
    """Where a section is, from the site's root; empty where the book lacks the lesson."""
    known = sections(page)  # none in a book without this lesson
    return known.get(section, f"topics/{page}.html") if known else ""
