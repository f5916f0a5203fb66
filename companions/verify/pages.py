"""Pages of scripts that `verify` watched: what was found, tensor by tensor; its causes.

In: the reports that readers and authors keep, and the table of causes. Out: the page of each that
a reader has, and in a page by hand, in place of a fence `verified`, a program with its report.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial

from markupsafe import Markup, escape

from proofbook.companions.verify.report import Cause, Off, Parameter, Watched
from proofbook.companions.verify.report import causes as known_causes
from proofbook.companions.verify.reports import Reports, Verified
from proofbook.generator.content.book import Book
from proofbook.generator.kinds.figures.drawings.strip import Bar, strip
from proofbook.generator.kinds.figures.figures import DrawnFigure, FigureOnPage
from proofbook.generator.kinds.figures.picture import DrawnState, Picture
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Aside, Element, Fold, ListOfLines, Made
from proofbook.generator.pages.elements.programs import WholeProgram
from proofbook.generator.pages.elements.tables import Table
from proofbook.generator.pages.environment import label, with_code
from proofbook.generator.pages.sheets import Sheet
from proofbook.generator.pages.views.handwritten import WrittenMarkdown
from proofbook.generator.printing.folio import breakable
from proofbook.generator.printing.markdown import whole_words
from proofbook.generator.printing.sources import PYTHON
from proofbook.runners.system.book import program

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
STATES = {
    "agrees": "agree", "differs": "differ", "frozen": "frozen", "not compared": "not compared",
}  # fmt: skip


def sheets(book: Book) -> Iterator[Sheet]:
    """The scripts that a reader had watched."""
    about = "A script that was watched: the verdict, and how its tensors compare."
    for name, trace in book.part(Reports).watched.items():
        title = f"Your run: {trace.report.script}"
        yield Sheet(f"verify/{name}.md", "watched", title, about, of=name, is_recorded=True)


def watched(draft: Draft) -> Iterator[Element | Markup]:
    """The page of a script that `verify` watched."""
    trace, known = draft.folio.book.part(Reports).watched[draft.sheet.of], known_causes()
    report = trace.report
    yield Made("WatchedScript", trace=trace)
    for finding in report.findings:
        cause = known[finding.cause]
        yield draft.heading(2, cause.title)
        others = [known[name] for name in finding.others]
        section = _section(cause, draft)
        yield Made("FindingReport", finding=finding, cause=cause, others=others, section=section)
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


def _section(cause: Cause, draft: Draft) -> Markup:
    sections = draft.gathered.sections(cause.page)  # none in a book without this lesson
    if not sections:
        return escape(cause.section)
    place = sections.get(cause.section, f"topics/{cause.page}.html")
    return Markup('<a href="{}{}">{}</a>').format(draft.folio.root, place, cause.section)


def own_runs(draft: Draft) -> Iterator[Element]:
    """What a reader had watched, above the page that shows a report."""
    reports = draft.folio.book.part(Reports)
    if reports.watched or reports.unread:
        yield Made("OwnRuns", reports=reports, root=draft.folio.root)


def reported(program: Verified, number: int, draft: Draft) -> Iterator[Element]:
    """A program, what `verify` printed of it, and how its tensors compare."""
    trace = draft.folio.book.part(Reports).verified[program.path]
    yield WholeProgram(draft.program(program))
    yield Made("PrintedReport", trace=trace, command=command(trace))
    yield strip_of_tensors(trace, f"strip-{number}")
    yield Fold(Markup("The numbers behind the figure"), [tensors(trace)])


def causes(draft: Draft) -> Iterator[Element]:
    """The tables of known causes, below such a page."""
    yield WrittenMarkdown(Markup("## What usually causes a finding\n"))
    for group, title in GROUPS.items():
        own = {key: cause for key, cause in known_causes().items() if cause.group == group}
        rows = [
            [cause.title, label(with_code(cause.usually)), _section(cause, draft)]
            for cause in own.values()
        ]
        anchors = [f"cause-{key.replace(' ', '-').replace(chr(39), '')}" for key in own]
        if rows:
            titles = ["Finding", "What usually causes it", "The book"]
            yield WrittenMarkdown(Markup("### {}\n").format(title))
            yield Table(titles, rows, anchors=anchors)


def command(trace: Watched) -> Markup:
    """The command that watches a script again."""
    return whole_words(f"{program(PYTHON)} {trace.command}")


def strip_of_tensors(trace: Watched, name: str) -> DrawnFigure:
    """A figure of a script's tensors, for a wide page and for a phone."""
    num = Counter(tensor.state for tensor in trace.tensors)
    counted = ", ".join(f"{num[state]} {word}" for state, word in STATES.items() if num[state])
    says = f"{num.total()} tensors, in the order of the model."
    says += f" The first that differs: {trace.first.name}." if trace.first else ""
    bars = [
        Bar(tensor.name, f"{tensor.name}: {tensor.state}", _times(tensor))
        for tensor in trace.tensors
    ]
    state = DrawnState(partial(strip, bars, "what rounding allows"), says)
    svg = state.svg(name, "The strip of tensors")
    caption = Markup(
        "A bar is the largest error of a gradient or of its update, over what rounding allows, "
        "on a logarithmic axis; a short dashed box was not compared. Gradients are compared up to "
        "the factor that most of them share, which the weights of the loss judge."
    )
    title = Markup("Each tensor beside that of one process: {}").format(label(counted))
    return DrawnFigure(FigureOnPage(name, title, caption, "", Picture(drawings=svg), []))


def tensors(trace: Watched) -> Table:
    """A row for each tensor of a watched script: shape, errors, what is allowed, and verdict."""
    has_steps = any(tensor.step for tensor in trace.tensors)
    titles = ["Tensor", "#Shape", "#Error of the gradient", "#Rounding allows",
              *["#Error of the update"] * has_steps, "Verdict"]  # fmt: skip
    css = {"agrees": "pb-holds", "differs": "pb-does-not-hold"}
    code, verdict = Markup("<code>{}</code>"), Markup('<span class="pb-verdict {}">{}</span>')
    rows = [
        [
            code.format(breakable(tensor.name)),
            label(" × ".join(map(str, tensor.shape)) or "scalar"),
            _error(tensor.gradient),
            label(_number(tensor.gradient.allowed) if tensor.gradient else "–"),
            *[_error(tensor.step)] * has_steps,
            verdict.format(css.get(tensor.state, ""), tensor.state),
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


def _error(off: Off | None) -> Markup:
    return label("–" if off is None else "not finite" if off.error is None else _number(off.error))


def _number(value: float) -> str:
    return f"{value:.2g}" if abs(value) < 1e-3 else f"{value:.4g}"
