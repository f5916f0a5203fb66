"""A script that `verify` watched: what was found, tensor by tensor and rank by rank; its causes.

In: the trace of a watched script, and the table of causes. Out: its page, a figure and tables.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from markupsafe import Markup, escape

from generator.figures.drawings.strip import Bar, strip
from generator.figures.figures import FigureOnPage
from generator.figures.picture import DrawnState, Picture
from generator.pages.draft import Draft
from generator.pages.elements.element import Aside, Block, Element, ListOfLines
from generator.pages.elements.figures import DrawnFigure
from generator.pages.elements.tables import Table
from generator.pages.environment import command_words, label, unbroken, with_code
from generator.printing.folio import breakable
from generator.printing.sources import PYTHON, moment
from runners.system.book import program
from runners.verify.report import Cause, Finding, Off, Parameter, Watched
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
VERDICTS = {"agrees": "pb-holds", "differs": "pb-does-not-hold"}


@dataclass(frozen=True)
class CauseTable(Table):
    """Findings of one kind: a row each, with its usual cause and the book's section."""


def watched(draft: Draft) -> Iterator[Element | Markup]:
    """The page of a script that `verify` watched."""
    trace = draft.folio.book.watched[draft.sheet.watched or ""]
    report = trace.report
    sure = {"agrees": " with one process", "not compared": " completely"}
    lede = Markup(
        '<p><code>{}</code> on <span class="pb-label">{}</span> ranks: '
        '<strong class="pb-verdict {}">{}</strong>{}.</p>'
    ).format(
        report.script, report.world_size, VERDICTS.get(report.verdict, "pb-differs"),
        report.verdict, sure.get(report.verdict, ""),
    )  # fmt: skip
    yield Block([lede], "pb-lede")
    torch = label(f"torch {trace.circumstances.torch}")
    yield Aside(Markup("Watched {} · {}").format(when_and_where(trace, " ·"), torch), "pb-meta")
    for finding in report.findings:
        yield from _finding(finding, draft)
    for title, lines in (("What was not compared", report.not_compared), ("Notes", report.notes)):
        if lines:
            yield draft.heading(2, title)
            yield ListOfLines([*map(with_code, lines)], line_css="pb-label")
    if trace.tensors:
        yield draft.heading(2, "The strip of tensors")
        yield strip_of_tensors(trace, "strip")
        yield tensors(trace)
    if report.weights:
        yield Aside(escape(report.weights), "pb-label")
    yield Aside(Markup("To watch it again: <code>{}</code>").format(command(trace)))
    if page := draft.folio.book.handwritten_by_name.get("verify"):
        link = Markup('<a href="{}verify.html">{}</a>')
        yield Aside(link.format(draft.folio.root, page.title))


def _finding(finding: Finding, draft: Draft) -> Iterator[Element]:
    """A finding of the report: its usual cause, and the book's section on it."""
    cause = known_causes()[finding.cause]
    yield draft.heading(2, cause.title)
    for line in finding.says.splitlines():
        yield Aside(with_code(line[:1].upper() + line[1:]), "pb-label")
    where = ", ".join(filter(None, [
        finding.place, finding.parameter, finding.off and f"off by {finding.off}",
        "" if finding.rank is None else f"rank {finding.rank}",
        "" if finding.step is None else f"update {finding.step}",
    ]))  # fmt: skip
    if where:
        yield Aside(Markup("At {}.").format(where), "pb-label")
    words = Markup('<span class="pb-label">{}</span> The book: {}')
    section = _section(cause, draft)
    yield Block([words.format(with_code(cause.usually), section)], tag="p")
    for other in (known_causes()[name] for name in finding.others):
        says = Markup(
            '<span class="pb-label">{} has the same factor here: {}</span> '
            "A run on another number of ranks tells the causes apart."
        )
        yield Block([says.format(with_code(other.title), with_code(other.usually))], tag="p")


def _section(cause: Cause, draft: Draft) -> Markup:
    """The section of the book on a cause, a link if the book has the lesson."""
    sections = draft.gathered.sections(cause.page)  # none in a book without this lesson
    if not sections:
        return escape(cause.section)
    place = sections.get(cause.section, f"topics/{cause.page}.html")
    return Markup('<a href="{}{}">{}</a>').format(draft.folio.root, place, cause.section)


def causes(draft: Draft) -> Iterator[tuple[str, CauseTable]]:
    """The tables of known causes, each with its title."""
    for group, title in GROUPS.items():
        own = {key: cause for key, cause in known_causes().items() if cause.group == group}
        rows = [
            [escape(cause.title), with_code(cause.usually), _section(cause, draft)]
            for cause in own.values()
        ]
        anchors = [f"cause-{key.replace(' ', '-').replace(chr(39), '')}" for key in own]
        if rows:
            titles = ["Finding", "What usually causes it", "The book"]
            yield title, CauseTable(titles, rows, anchors=anchors)


def command(trace: Watched) -> Markup:
    """The command that watches a script again."""
    return command_words(f"{program(PYTHON)} {trace.command}")


def when_and_where(trace: Watched, joint: str) -> Markup:
    """When a script was watched, and on which machine."""
    when, machine = label(moment(trace.recorded_at)), unbroken(trace.machine)
    return Markup("{}{} <code>{}</code>").format(when, joint, machine)


def _in_words(watched: Watched) -> str:
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


def strip_of_tensors(trace: Watched, name: str) -> DrawnFigure:
    """A figure of a script's tensors, for a wide page and for a phone."""
    bars = [
        Bar(tensor.name, f"{tensor.name}: {tensor.state}", _times(tensor))
        for tensor in trace.tensors
    ]
    says = _in_words(trace)
    state = DrawnState(partial(strip, bars, "what rounding allows"), says)
    svg = state.svg(name, "The strip of tensors")
    caption = Markup(
        "{} A bar is the largest error of a gradient or of its update, over what rounding allows, "
        "on a logarithmic axis; a short dashed box was not compared. Gradients are compared up to "
        "the factor that most of them share, which the weights of the loss judge."
    ).format(label(says))
    title = Markup("Each tensor beside that of one process")
    return DrawnFigure(FigureOnPage(name, title, caption, "", Picture(drawings=svg), []))


def tensors(trace: Watched) -> Table:
    """A row for each tensor of a watched script: shape, errors, what is allowed, and verdict."""
    titles = ["Tensor", "#Shape", "#Error of the gradient", "#Rounding allows",
              "#Error of the update", "Verdict"]  # fmt: skip
    rows = [
        [
            Markup("<code>{}</code>").format(breakable(tensor.name)),
            label(" × ".join(map(str, tensor.shape)) or "scalar"),
            _error(tensor.gradient),
            label(_number(tensor.gradient.allowed) if tensor.gradient else "–"),
            _error(tensor.step),
            _state(tensor),
        ]
        for tensor in trace.tensors
    ]
    return Table(titles, rows, is_found=False)


def _times(tensor: Parameter) -> float | None:
    """The larger of both errors over what rounding allows; None where none was compared."""
    ratios = [
        MOST if off.error is None else min(MOST, off.error / (off.allowed or 1 / MOST))
        for off in (tensor.gradient, tensor.step)
        if off and not tensor.is_frozen
    ]
    return max(ratios, default=None)


def _state(tensor: Parameter) -> Markup:
    verdict = Markup('<span class="pb-verdict {}">{}</span>')
    return verdict.format(VERDICTS.get(tensor.state, ""), tensor.state)


def _error(off: Off | None) -> Markup:
    return label("–" if off is None else "not finite" if off.error is None else _number(off.error))


def _number(value: float) -> str:
    return f"{value:.2g}" if abs(value) < 1e-3 else f"{value:.4g}"
