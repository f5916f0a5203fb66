"""The lessons: for each mode, a lesson's file → its page."""

from collections.abc import Iterable, Iterator

from markupsafe import Markup

from generator.content.lesson import Decision, LearnFile, WhyFile, WorkedFile
from generator.pages.draft import Draft
from generator.pages.elements.element import Aside, Block, Element, Fold
from generator.pages.elements.tables import Table
from generator.pages.views import claims, plans

Parts = Iterator[Element | Markup]
SEEN = "What the runs showed"
PLANNED = Markup(
    "<p>We simulated these layouts for real models, on H100s in nodes of eight. No other simulated "
    "layout of the same training needs less memory and sends less over each kind of link. Memory "
    "counts only where it is short. Where computing decides how long both take at least, the other "
    'one must also come earlier by the <a href="../../plan.html#how-to-read-a-plan">rule</a>. The '
    "last column counts the layouts that were compared. The pages of the layouts say what is "
    "assumed.</p>"
)


def reveal(summary: str, after: str, content: Iterable[Element | Markup], css: str = "") -> Fold:
    """A fold that the answer to a question opens."""
    return Fold(Markup(summary), list(content), f"pb-reveal{css}", after)


def learn(draft: Draft) -> Parts:
    """The first page of a topic."""
    lesson = draft.lesson(LearnFile)
    yield draft.lede(lesson.introduction)
    yield draft.heading(2, "The idea")
    yield Block([draft.prose(lesson.idea), *draft.figure(lesson.figure)])
    yield draft.heading(2, "Predict, then see")
    yield from draft.item(lesson.commit, "commit")
    yield reveal(SEEN, lesson.commit, _seen(lesson, draft), " pb-seen")
    yield draft.heading(2, "The smallest real program")
    yield Block([*_smallest_program(lesson, draft)])
    yield from draft.checks(lesson.checks)
    yield from draft.takeaway(lesson.takeaway)


def _seen(lesson: LearnFile, draft: Draft) -> Parts:
    if lesson.seen.title != SEEN:
        title = draft.folio.line(lesson.seen.title)
        yield draft.heading(3, title, css="pb-reveal-title", is_listed=False)
    yield from draft.section_body(lesson.seen)


def _smallest_program(lesson: LearnFile, draft: Draft) -> Parts:
    yield draft.program(lesson.program)
    yield draft.heading(3, "Line by line", is_listed=False)
    yield draft.notes(lesson.program)
    yield draft.heading(3, "What it printed", is_listed=False)
    yield draft.waiting(lesson.commit, "what it printed", _printed(lesson, draft))


def _printed(lesson: LearnFile, draft: Draft) -> Parts:
    yield draft.program(lesson.program).output
    yield draft.prose(lesson.program.output_says)


def worked(draft: Draft) -> Parts:
    """One case, term by term."""
    lesson = draft.lesson(WorkedFile)
    yield draft.lede(lesson.introduction)
    yield draft.heading(2, "Step by step")
    for number, step in enumerate(lesson.steps, 1):
        yield draft.heading(3, draft.folio.line(step.title), number)
        yield from draft.section_body(step)
    yield from draft.checks(lesson.checks)
    yield from draft.takeaway(lesson.takeaway)


def why(draft: Draft) -> Parts:
    """What the technique is for, what came before it, and which method to use when."""
    lesson, folio = draft.lesson(WhyFile), draft.folio
    yield draft.lede(lesson.introduction)
    yield from draft.sections([lesson.purpose], 3, "What it is for")
    yield from draft.sections(lesson.before, 3, "What came before")
    yield from draft.passage("Which method, when", lesson.decisions_say)
    decisions = [
        [folio.line(decision.situation), draft.line(decision.use), _because(decision, draft)]
        for decision in lesson.decisions
    ]
    yield Table(["Your situation", "Use", "Because"], decisions)
    layouts, caption = plans.planned_rows(lesson, folio)
    if layouts:
        yield draft.heading(3, "The same at the size of real models")
        yield Block([PLANNED])
        yield Table(plans.LAYOUTS, layouts, caption)
    if folio.book.guide:
        start = 'If a run fails, start from the symptom: <a href="{}guide.html">{}</a>'
        title = folio.in_link.line(folio.book.guide.title)
        yield Aside(Markup(start).format(folio.root, title))
    yield from draft.sections(lesson.when_not, 3, "When not to use it")
    yield from draft.checks(lesson.checks)
    yield from draft.takeaway(lesson.takeaway)


def _because(decision: Decision, draft: Draft) -> Markup:
    """The reason for a decision, with the verdict of its claim or a link to its run."""
    because, folio = draft.line(decision.because), draft.folio
    if decision.claim is None:
        run = "The run" if folio.run(decision.run) else "skipped"
        link = Markup('{} <a class="pb-opens" href="{}{}">{}</a>')
        return link.format(because, folio.root, folio.place_of(decision.run), run)
    claim = claims.verdict_row(decision.claim, folio)
    sides = " (predicted {}, observed {})" if claim.is_contrary else ""
    reason = Markup("{} Claim: {}" + sides)
    return reason.format(because, claims.verdict_link(claim), claim.predicted, claim.observed)
