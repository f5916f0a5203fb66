"""The lessons: for each mode, a lesson's file → its page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

from markupsafe import Markup, escape

from proofbook.generator.content.book import Book, Topic
from proofbook.generator.content.exhibit import ExplainedProgram, Listing
from proofbook.generator.content.lesson import Mode
from proofbook.generator.kinds.lessons import parts
from proofbook.generator.kinds.lessons import words as files
from proofbook.generator.kinds.lessons.chain import chain
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements import programs
from proofbook.generator.pages.elements.element import Aside, Block, Element, Fold
from proofbook.generator.pages.elements.tables import Table
from proofbook.generator.pages.sheets import Sheet
from proofbook.generator.pages.views import claims
from proofbook.runners.system.kinds import filling, page_kind

Parts = Iterator[Element | Markup]
# The titles in a summary of what to keep of a lesson, by its mode.
SUMMARIZED: Mapping[Mode, str] = {
    "learn": "The idea",
    "why": "When to use what",
    "deep": "What to remember",
    "cost": "What it costs",
}
SEEN = "What the runs showed"


def reveal(summary: str, after: str, content: Iterable[Element | Markup], css: str = "") -> Fold:
    """A fold that the answer to a question opens."""
    return Fold(Markup(summary), list(content), f"pb-reveal{css}", after)


CHEAT_SHEET = "cheat-sheet"  # its path, without an ending


def sheets(book: Book) -> Iterator[Sheet]:
    """The pages of lessons, those of the chain of Deep, and the summary of each topic."""
    for topic in book.topics:
        yield from _lessons(topic)
        if topic.file.key_laws:
            path, written = f"topics/{topic.id}/summary.md", f"content/topics/{topic.id}/topic.yml"
            title = f"Summary of “{topic.file.title}”"
            yield Sheet(path, "summary", title, topic.file.summary, written, topic=topic)
    if any(topic.file.key_laws for topic in book.topics):
        about = (
            "The laws of all topics with their formulas, on two sheets of paper. Letters hold "
            "within a topic. Runs are on gloo unless a row says otherwise; behind each verdict "
            "stands its regime."
        )
        yield Sheet(f"{CHEAT_SHEET}.md", "sheet", "Cheat sheet", about)


def _lessons(topic: Topic) -> Iterator[Sheet]:
    known = {mode: lesson for mode, lesson in topic.lessons.items() if page_kind(mode)}
    for mode, lesson in known.items():
        model, path = lesson.model, f"topics/{topic.id}/{mode}"
        sheet = partial(Sheet, source=lesson.source.file, topic=topic, mode=mode)
        yield sheet(f"{path}.md", mode, model.title, topic.file.modes[mode])
        for part in chain(model) if isinstance(model, files.DeepFile) else ():
            about = part.opening or part.title
            page = f"{path}-{part.id}.md"
            yield sheet(page, "chain", part.title, about, of=part.id, is_part=True)


def learn(draft: Draft) -> Parts:
    """The first page of a topic."""
    lesson = draft.lesson(files.LearnFile)
    yield draft.heading(2, "The idea")
    yield Block([draft.prose(lesson.idea), *parts.figure(draft, lesson.figure)])
    yield from parts.sections(draft, lesson.more, 3)
    yield draft.heading(2, "Predict, then see")
    yield from parts.item(draft, lesson.commit, "commit")
    shown: list[Element | Markup] = []
    if lesson.seen.title != SEEN:
        title = draft.folio.line(lesson.seen.title)
        shown.append(draft.heading(3, title, css="pb-reveal-title", is_listed=False))
    shown += parts.section_body(draft, lesson.seen)
    yield reveal(SEEN, lesson.commit, shown, " pb-seen")
    yield draft.heading(2, "The smallest real program")
    program = draft.program(lesson.program)
    lines = draft.heading(3, "Line by line", is_listed=False), draft.notes(lesson.program)
    below = draft.heading(3, "What it printed", is_listed=False)
    printed: list[Element | Markup] = [program.output, draft.prose(lesson.program.output_says)]
    yield Block([program, *lines, below, draft.waiting(lesson.commit, "what it printed", printed)])
    yield from parts.end(draft, lesson.checks, lesson.takeaway)


def worked(draft: Draft) -> Parts:
    """One case, term by term."""
    lesson = draft.lesson(files.WorkedFile)
    yield draft.heading(2, "Step by step")
    for number, step in enumerate(lesson.steps, 1):
        yield draft.heading(3, draft.folio.line(step.title), number)
        yield from parts.section_body(draft, step)
    yield from parts.end(draft, lesson.checks, lesson.takeaway)


def why(draft: Draft) -> Parts:
    """What the technique is for, what came before it, and which method to use when."""
    lesson, folio = draft.lesson(files.WhyFile), draft.folio
    yield from parts.sections(draft, [lesson.purpose], 3, "What it is for")
    yield from parts.sections(draft, lesson.before, 3, "What came before")
    yield from draft.passage("Which method, when", lesson.decisions_say)
    decisions = [
        [folio.line(decision.situation), draft.line(decision.use), _because(decision, draft)]
        for decision in lesson.decisions
    ]
    yield Table(["Your situation", "Use", "Because"], decisions)
    for layouts in filling("layouts of decisions"):
        yield from layouts(draft, lesson)
    for lead in filling("below decisions"):
        yield from lead(draft)
    yield from parts.sections(draft, lesson.when_not, 3, "When not to use it")
    yield from parts.end(draft, lesson.checks, lesson.takeaway)


def _because(decision: files.Decision, draft: Draft) -> Markup:
    """The reason for a decision, with the verdict of its claim or a link to its run."""
    because, folio = draft.line(decision.because), draft.folio
    if decision.claim is None:
        run = "The run" if folio.run(decision.run) else "skipped"
        link = Markup('{} <a class="pb-opens" href="{}{}">{}</a>')
        return link.format(because, folio.root, folio.place_of(decision.run), run)
    claim = claims.verdict_row(decision.claim, folio, always_sides=False)
    sides = Markup(" (predicted {}, observed {})" * claim.is_contrary)
    return because + " Claim: " + claim.link + sides.format(claim.predicted, claim.observed)


def challenge(draft: Draft) -> Parts:
    """Problems to solve, each with its worked answer."""
    lesson = draft.lesson(files.ChallengeFile)
    yield draft.heading(2, "Problems")
    for number, problem in enumerate(lesson.problems, 1):
        title = draft.folio.line(problem.title)
        yield from draft.passage(title, problem.situation, number, 3)
        if problem.output:
            yield programs.printed(problem.output, draft.folio)
        first, *later = *problem.steps, problem.item
        yield from parts.item(draft, first, "challenge")
        for before, name in pairwise((first, *later)):
            yield reveal("The next question", before, parts.item(draft, name, "challenge"))
        yield reveal("The worked answer", problem.item, [draft.prose(problem.worked)])
    yield from draft.passage("Where this leaves you", lesson.afterword)


def experiment(draft: Draft) -> Parts:
    """A task, hints, and a solution that waits for the answer to the page's question."""
    lesson, folio = draft.lesson(files.ExperimentFile), draft.folio
    is_late = lesson.asks_after_task
    yield from parts.item(draft, None if is_late else lesson.commit, "commit")
    yield from draft.passage("Problem", lesson.problem)
    if lesson.output:
        yield draft.heading(3, "What the run printed")
        yield programs.printed(lesson.output, folio.for_runs([lesson.output]))
    if lesson.issue:
        yield from draft.passage("The issue", lesson.issue, level=3)
    yield draft.heading(2, "Your task")
    task: list[Element | Markup] = [draft.prose(lesson.task)]
    if lesson.constraints:
        task += [Markup("<p>Constraints:</p>"), draft.lines(lesson.constraints)]
    yield Block(task)
    yield from parts.item(draft, lesson.commit if is_late else None, "commit")
    yield from parts.sections(draft, [lesson.refuted, lesson.restated], 3, after=lesson.commit)
    if lesson.hints:
        yield draft.heading(3, "Hints")
        hints = [_hint(text, draft, number) for number, text in enumerate(lesson.hints, 1)]
        yield draft.waiting(lesson.commit if lesson.restated else None, "hints", hints)
    yield from _solution(lesson, draft)
    for section in lesson.more:
        after = None if section.commit or section.program else lesson.commit
        yield from parts.sections(draft, [section], 2, after=after)
    if bonus := lesson.bonus:
        yield from draft.passage("Bonus", bonus.task)
        yield _hint(bonus.hint, draft)
        program = _code(bonus.listing, draft) if bonus.listing else ()
        yield Fold(Markup("The answer"), [draft.prose(bonus.answer), *program], "pb-answer")


def _hint(text: str, draft: Draft, number: int | None = None) -> Fold:
    label = Markup(' <span class="pb-label">{}</span>').format(number) if number else ""
    return Fold("Hint" + escape(label), [draft.prose(text)], "pb-hint")


def _solution(lesson: files.ExperimentFile, draft: Draft) -> Parts:
    """The parts of the solution that there are; each waits for the answer."""

    def after_answer(title: str, content: Iterable[Element | Markup], level: int = 3) -> Parts:
        if inside := [*content]:
            heading = draft.heading(level, title)
            yield draft.waiting(lesson.commit, title.lower(), [heading, *inside])

    yield from after_answer("Solution", _code(lesson.solution, draft), 2)
    yield from after_answer("What changed", _lines(lesson.what_changed, draft))
    if lesson.compared:
        yield from after_answer("Before and after", draft.table(lesson.compared, "What"))
    yield from parts.sections(draft, [lesson.good_for], 3, after=lesson.commit)
    yield from after_answer("Surprises", _lines(lesson.surprises, draft))
    yield from after_answer("Claims of this page", draft.verdicts(lesson.claims))


def _lines(texts: Sequence[str], draft: Draft) -> list[Element]:
    return [draft.lines(texts)] if texts else []


def _code(written: Listing, draft: Draft) -> Parts:
    """A program with what it printed; one that is explained, closed."""
    if isinstance(written, ExplainedProgram):
        yield from draft.explained(written)
    else:
        program = draft.program(written)
        yield from (program, program.output)


def summary(draft: Draft) -> Parts:
    """What to keep of each lesson of a topic, the figure of Learn, and the laws."""
    topic, folio = draft.topic, draft.folio
    lessons = {mode: written.model for mode, written in topic.lessons.items()}
    yield Block([draft.prose(topic.file.summary)], "pb-lede pb-summary")
    first = lessons.get("learn")
    if isinstance(first, files.LearnFile):
        figure = parts.first_state(draft, topic.figures[f"learn#{first.figure}"])
        yield figure
        if figure.of.picture.play:
            link = '<a href="learn.html#figure-{}">The figure with its other settings, on Learn</a>'
            yield Aside(Markup(link).format(figure.of.id), "pb-meta pb-opens")
    for mode, title in SUMMARIZED.items():
        if mode in lessons:
            yield draft.heading(2, title)
            kept = draft.kept(lessons[mode])
            yield kept if isinstance(kept, Element) else Block([kept])
    yield draft.heading(2, "Laws, and what runs measured")
    laws = claims.verdict_rows(topic.file.key_laws, folio)
    yield claims.judged_table(laws, has_formula=True)
    link = '<a href="{}">The laws of all topics, on two sheets</a>'
    yield Aside(Markup(link).format(f"{folio.root}{CHEAT_SHEET}.html"), "pb-meta pb-opens")


def cheat_sheet(draft: Draft) -> Parts:
    """The laws of each topic with their formulas, and what the letters stand for."""
    folio = draft.folio
    yield Block([draft.prose(draft.sheet.about)], "pb-lede pb-summary")
    link = Markup('<a href="topics/{}/summary.html">Summary of this topic</a>')
    for topic in folio.book.topics:
        if topic.file.key_laws:
            yield draft.heading(2, folio.in_link.line(topic.file.title))
            laws = [
                claims.verdict_row(name, folio, always_sides=False) for name in topic.file.key_laws
            ]
            rows = [[law.says, law.formula or "–", law.link] for law in laws]
            yield Table(
                ["Law or observation", "Formula", "Verdict"], rows, is_found=False, is_headed=False
            )
            judged = (folio.judged(name).claim for name in topic.file.key_laws)
            texts = [claim.formula for claim in judged if claim.formula]
            for letters in filling("letters"):
                yield from letters(topic.file, folio, texts)
            yield Aside(link.format(topic.id), "pb-meta pb-opens")
