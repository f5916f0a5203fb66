"""A class of a topic: its plan, what is asked in it and on paper, and what people get wrong.

In: a topic with the pages that it has. Out: what the documents of `python -m generator class` hold.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import NamedTuple

from markupsafe import Markup

from generator.content.book import Topic
from generator.content.exhibit import Figure
from generator.content.lesson import DeepFile, LearnFile, Mode
from generator.content.quiz import Item
from generator.figures import figures
from generator.figures.play import states as play_states
from generator.items.kinds import kind_of
from generator.pages.draft import Draft
from generator.pages.elements.element import Content, Element
from generator.pages.elements.figures import DrawnFigure, drawn_once
from generator.pages.elements.programs import ListedProgram, RunOutput
from generator.pages.elements.questions import Question, question
from generator.pages.elements.tables import Row, Table
from generator.pages.views import claims, labs
from generator.pages.views.claims import JudgedClaim
from generator.printing.folio import Folio, breakable
from generator.printing.markdown import plain

MINUTES, STEP = 90, 5
ON_PAPER, IN_CLASS = 10, 4  # questions, and how many of them students answer at once
# What a class shows of a topic: the first three pages that it has, and how the time is divided.
SHOWN: tuple[Mode, ...] = ("learn", "deep", "why", "worked", "trace", "cost", "experiment")
WEIGHTS = {"learn": 3, "deep": 4, "paper": 3, "lab": 4}
OTHER_WEIGHT = 2
BELIEFS = 7  # the most frequent, on a page
LINES = 25  # of a program on a slide, in letters that the last row can read
EXPLAINED = 6  # lines that a heading and the words below an output take
AN_EMPTY_LINE = 3  # lines further from the middle are no worse a place to cut a program


class Step(NamedTuple):
    """A part of the class, from one minute to another."""

    name: str  # of a mode, or `beliefs`, `paper` or `lab`
    begins: int
    ends: int


class PresentedLesson(NamedTuple):
    """A lesson that a class shows, and the question to vote on before it."""

    title: Markup
    says: Markup
    letter: str
    question: Question | None
    kept: Element | Markup


class ProgramSlides(NamedTuple):
    """The smallest program of a topic, on as many slides as it takes."""

    title: Markup
    codes: Sequence[Markup]
    output: RunOutput
    output_says: Markup


@dataclass(frozen=True)
class Lecture:
    """A class of a topic."""

    topic: Markup
    folder: str  # of the topic's pages
    summary: Markup
    requires: Sequence[str]  # topics
    steps: Sequence[Step]
    lessons: Mapping[Mode, PresentedLesson]
    idea: Content
    program: ProgramSlides | None
    laws: Table | None
    paper: Sequence[Question]
    beliefs: Sequence[Markup]
    mistakes: Table  # a row for each belief
    lab: Markup | None  # the title of the first
    task: Content


def lecture(draft: Draft) -> Lecture:
    """A class on the draft's topic; parts without content are empty."""
    topic, folio = draft.topic, draft.folio
    modes = [mode for mode in SHOWN if mode in topic.lessons][:3]
    recalled = topic.items_by_mode.get("recall", topic.items)  # not only on their own page
    names = {name for name in recalled if _fits_paper(topic.items[name], folio)}
    asked: dict[Mode, str] = {}
    for mode in modes:
        for name in topic.items_by_mode[mode]:
            if topic.items[name].kind == "choice" and name in names - {*asked.values()}:
                asked[mode] = name  # hands are raised for one of its options
                break
    believed = _beliefs(topic, folio)
    paper = _on_paper(topic, names - {*asked.values()})
    more = {"beliefs": believed, "paper": paper, "lab": topic.labs}
    titles = {other.id: other.file.title for other in folio.book.topics}
    summary = draft.prose(topic.file.summary)
    lessons = {mode: _presented(mode, asked, draft) for mode in modes}
    learn = topic.lessons["learn"].model if "learn" in modes else None
    lab = topic.labs[draft.sheet.lab].model if draft.sheet.lab else None
    pictured = topic.figures[lab.figure] if lab and lab.figure else None
    picture = [_first_state(pictured, folio)] if pictured else []
    laws = claims.verdict_rows(topic.file.key_laws, folio)
    return Lecture(
        folio.line(topic.file.title),
        f"topics/{topic.id}",
        summary,
        [plain(folio.line(titles[name])) for name in topic.file.requires],
        _timed([*modes, *(step for step, needs in more.items() if needs)]),
        lessons,
        _idea(learn, draft) if isinstance(learn, LearnFile) else [],
        _program(learn, draft) if isinstance(learn, LearnFile) else None,
        claims.judged_table(laws, has_formula=True) if laws else None,
        [question(topic.items[name], folio, "question") for name in paper],
        [belief for belief, _ in believed],
        Table(
            ["Belief", "What runs showed", "#Predicted", "#Observed"],
            [_refuted(*pair) for pair in believed],
            is_headed=False,
        ),
        folio.line(lab.title) if lab else None,
        [*labs.task(draft, picture)] if lab else [],
    )


def _presented(mode: Mode, asked: Mapping[Mode, str], draft: Draft) -> PresentedLesson:
    topic, folio = draft.topic, draft.folio
    lesson, letter, posed = topic.lessons[mode].model, "", None
    if mode in asked:
        letter = "ABC"[[*asked].index(mode)]
        posed = question(topic.items[asked[mode]], folio, "question")
    kept: Element | Markup
    if isinstance(lesson, DeepFile):
        kept = draft.lines(lesson.takeaways)
    else:
        kept = draft.prose(getattr(lesson, "takeaway", lesson.introduction))
    return PresentedLesson(
        folio.line(lesson.title), folio.line(topic.file.modes[mode]), letter, posed, kept
    )


def _first_state(figure: Figure, folio: Folio) -> DrawnFigure:
    """A figure as paper shows it."""
    drawn = figures.draw(play_states.first_alone(figure, folio), folio)
    return drawn_once(drawn, with_numbers=False)


def _idea(lesson: LearnFile, draft: Draft) -> Content:
    figure = next(figure for figure in lesson.figures if figure.id == lesson.figure)
    return [draft.prose(lesson.idea), _first_state(figure, draft.folio)]


def _program(lesson: LearnFile, draft: Draft) -> ProgramSlides:
    program, says = draft.program(lesson.program), draft.prose(lesson.program.output_says)
    title = draft.folio.line(lesson.program.title)
    return ProgramSlides(title, on_slides(program), program.output, says)


def _refuted(belief: Markup, claim: JudgedClaim) -> Row:
    """A belief, and the claim against it with both sides."""
    says = claim.says + (f" ({claim.words})" if claim.words != "holds" else "")
    if claim.formula:
        says += Markup("<br><small>Compared: {}</small>").format(claim.formula)
    says += claim.regime_words or Markup("<br>")
    runs = Markup(", ").join(map(breakable, claim.outcome.runs))
    says += Markup("<small>Run{}: {}</small>").format("s" * (len(claim.outcome.runs) > 1), runs)
    return [Markup("“{}”").format(belief), says, claim.predicted, claim.observed]


def on_slides(program: ListedProgram) -> list[Markup]:
    """Parts of a listing's code, as HTML, a slide each; the last leaves space for the output.

    A part begins with a line that is not indented, where it can after an empty one.
    """
    lines, rest = program.code.splitlines(), len(program.output.printed.splitlines()) + EXPLAINED
    num, starts = -(-(len(lines) + rest) // LINES), [0]
    for part in range(1, num):
        wanted = part * (len(lines) + rest) / num
        off = {
            place: abs(place - wanted) - AN_EMPTY_LINE * (not lines[place - 1])
            for place in range(starts[-1] + 1, min(starts[-1] + LINES, len(lines) - 1) + 1)
            if lines[place] and not lines[place].startswith((" ", ")", "]"))
        }
        starts += [min(off, key=off.__getitem__)] if off else []
    ends = [*starts[1:], len(lines)]
    return [Markup("\n").join(lines[start:end]) for start, end in zip(starts, ends, strict=True)]


def _timed(steps: list[str]) -> list[Step]:
    """The steps with their minutes, in multiples of `STEP` that fill the class."""
    weights = [WEIGHTS.get(step, OTHER_WEIGHT) for step in steps]
    ends = [
        round(MINUTES * sum(weights[: place + 1]) / sum(weights) / STEP) * STEP
        for place in range(len(steps))
    ]
    return [
        Step(name, start, end) for name, start, end in zip(steps, [0, *ends], ends, strict=False)
    ]


def _on_paper(topic: Topic, names: set[str]) -> list[str]:
    """The first of these questions that each page asks, then the second."""
    by_mode = (own for mode, own in topic.items_by_mode.items() if mode != "recall")
    in_turn = dict.fromkeys(chain.from_iterable(zip_longest(*by_mode, topic.items)))
    return [name for name in in_turn if name in names][:ON_PAPER]


def _fits_paper(quiz_item: Item, folio: Folio) -> bool:
    """Whether a sheet of paper can ask it: a program to search would fill a page."""
    kind = kind_of(quiz_item, folio.evidence)
    return kind.is_graded and not kind.key.is_open and kind.form != "lines"


def _beliefs(topic: Topic, folio: Folio) -> list[tuple[Markup, JudgedClaim]]:
    """A topic's most frequent misconceptions, each with the claim that refutes it."""
    parts = (
        part
        for quiz_item in topic.items.values()
        for key in ("options", "slips", "lines")
        for part in getattr(quiz_item, key, ())
    )
    named = Counter(part.misconception for part in parts if part.misconception)
    misconceptions = [folio.book.misconceptions[name] for name, _ in named.most_common(BELIEFS)]
    return [
        (folio.line(wrong.belief), claims.verdict_row(wrong.refuted_by, folio))
        for wrong in misconceptions
    ]
