"""A class of a topic: its plan, what is asked in it and on paper, and what people get wrong.

In: a topic with the pages that it has. Out: the content of the documents of `python -m generator
class`; what students get holds no answer.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import NamedTuple

from markupsafe import Markup

from generator.content.book import Topic
from generator.content.exhibit import Figure
from generator.content.lesson import DeepFile, LearnFile, LessonFile, Mode
from generator.content.quiz import Item
from generator.figures import figures
from generator.figures.play import states as play_states
from generator.items.kinds import kind_of
from generator.pages.draft import Draft
from generator.pages.elements.element import Block, Element, ListOfLines
from generator.pages.elements.figures import DrawnFigure, drawn_once
from generator.pages.elements.programs import ListedProgram, PrintedText
from generator.pages.elements.questions import Question
from generator.pages.elements.tables import Row, Table
from generator.pages.view import label
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


ON_SLIDE = 6  # beliefs
Parts = Iterator[Element | Markup]


@dataclass(frozen=True)
class NumberedCode(Element):
    """A part of a program with the numbers of its lines."""

    code: Markup


@dataclass(frozen=True)
class PosedQuestion(Element):
    """A question on paper, without its answer."""

    called: str
    question: Question


@dataclass(frozen=True)
class AnsweredQuestion(PosedQuestion):
    """A question on paper, with its answer."""


class Step(NamedTuple):
    """A part of the class, from one minute to another."""

    name: str  # of a mode, or `beliefs`, `paper` or `lab`
    begins: int
    ends: int


@dataclass(frozen=True)
class Lecture:
    """The plan of a class."""

    shown: Sequence[Mode]
    asked: Mapping[Mode, str]  # the question to vote on before the page of a mode
    steps: Sequence[Step]
    paper: Sequence[str]  # questions
    beliefs: Sequence[tuple[Markup, JudgedClaim]]  # each with the claim that refutes it

    def letter(self, mode: Mode) -> str:
        """What the question before the page of a mode is called."""
        return "ABC"[[*self.asked].index(mode)]


def lecture(topic: Topic, folio: Folio) -> Lecture:
    """The plan of a class on a topic."""
    modes = [mode for mode in SHOWN if mode in topic.lessons][:3]
    recalled = topic.items_by_mode.get("recall", topic.items)  # not only on their own page
    names = {name for name in recalled if _fits_paper(topic.items[name], folio)}
    asked: dict[Mode, str] = {}
    for mode in modes:
        for name in topic.items_by_mode[mode]:
            if topic.items[name].kind == "choice" and name in names - {*asked.values()}:
                asked[mode] = name  # hands are raised for one of its options
                break
    wrong = _beliefs(topic, folio)
    paper = _on_paper(topic, names - {*asked.values()})
    more = {"beliefs": wrong, "paper": paper, "lab": topic.labs}
    steps = _timed([*modes, *(step for step, needs in more.items() if needs)])
    return Lecture(modes, asked, steps, paper, wrong)


# --- the documents


def _plan(plan: Lecture, draft: Draft) -> Parts:
    """What happens when."""
    file, folio = draft.topic.file, draft.folio
    title = Markup('<h1>{}: a class of <span class="pb-label">{}</span> minutes</h1>')
    yield title.format(folio.line(file.title), MINUTES)
    yield draft.prose(file.summary)
    rows = [[f"{step.begins}–{step.ends}", *_step(step.name, plan, draft)] for step in plan.steps]
    yield Table(["Minutes", "What happens", "What you need"], rows, head_css="pb-keep")
    if file.requires:
        titles = {topic.id: topic.file.title for topic in folio.book.topics}
        known = ", ".join(f"“{plain(folio.line(titles[name]))}”" for name in file.requires)
        yield Markup("<p>Students need to know: {}.</p>").format(known)
    if plan.asked:
        yield Markup(
            "<p>How to ask: students vote by raising hands before you show anything, discuss in "
            "pairs, and vote again. Give the answer after the second vote.</p>"
        )


def _step(name: str, plan: Lecture, draft: Draft) -> tuple[Markup, Markup]:
    """What happens in a step of the plan, and what one needs for it."""
    folio, topic = draft.folio, draft.topic
    if name == "beliefs":
        says = "Show the beliefs. Students say what is wrong with each; then read out what the "
        return Markup(says + "runs measured."), Markup("slides; mistakes")
    if name == "lab":
        title = folio.line(next(iter(topic.labs.values())).model.title)
        says = "In pairs, students begin the lab “{}”. They finish it at home."
        needs = "lab; a computer for each pair with the book and PyTorch"
        return Markup(says).format(title), Markup(needs)
    if name == "paper":
        num = min(len(plan.paper), IN_CLASS)
        says = "Students answer {} on paper, alone. They compare their answers in pairs, and then "
        says += "you go through them."
        says += " The other questions are homework." if len(plan.paper) > num else ""
        first = label(f"the first {num} questions")
        return Markup(says).format(first), Markup("questions, one copy each; answers")
    for mode in (mode for mode in plan.shown if mode == name):
        ask = f"Ask question {plan.letter(mode)}. " if mode in plan.asked else ""
        title, says = (
            folio.line(topic.lessons[mode].model.title),
            folio.line(topic.file.modes[mode]),
        )
        show = Markup("{}Show “{}” (<code>topics/{}/{}.html</code>): {}")
        needs = Markup("slides; the page, in <code>site/html</code> of the built book")
        return show.format(ask, title, topic.id, mode, says), needs
    raise ValueError(name)


def _slides(plan: Lecture, draft: Draft) -> Parts:
    """What a lecturer shows."""
    topic, folio = draft.topic, draft.folio
    title = Markup("<h1>{}</h1>").format(folio.line(topic.file.title))
    yield Block([title, draft.prose(topic.file.summary)], tag="section")
    for mode in plan.shown:
        if mode in plan.asked:
            yield Block(
                [_posed(plan.asked[mode], f"Question {plan.letter(mode)}", draft)], tag="section"
            )
        if mode == "learn":
            yield from _learned(topic.lessons[mode].model, draft)
    if plan.shown:
        kept = [part for mode in plan.shown for part in _kept(mode, draft)]
        yield Block([Markup("<h2>To remember</h2>"), *kept], tag="section")
    if topic.file.key_laws:
        laws = claims.judged_table(claims.verdict_rows(topic.file.key_laws, folio), True)
        yield Block([Markup("<h2>Laws, and what runs measured</h2>"), laws], tag="section")
    if plan.beliefs:
        lines = ListOfLines([belief for belief, _ in plan.beliefs[:ON_SLIDE]], "ol")
        yield Block([Markup("<h2>What is wrong with each sentence?</h2>"), lines], tag="section")


def _learned(lesson: LessonFile, draft: Draft) -> Parts:
    """The idea of a topic, and its smallest program."""
    assert isinstance(lesson, LearnFile)
    figure = next(figure for figure in lesson.figures if figure.id == lesson.figure)
    drawn = _first_state(figure, draft.folio)
    idea = Markup("<h2>The idea</h2>")
    yield Block([idea, draft.prose(lesson.idea), drawn], tag="section")
    program = draft.program(lesson.program)
    pieces, title = on_slides(program), draft.folio.line(lesson.program.title)
    for number, code in enumerate(pieces, 1):
        heading = Markup("<h2>{}{}</h2>").format(title, ", continued" if number > 1 else "")
        slide: list[Element | Markup] = [heading, NumberedCode(code)]
        if number == len(pieces):
            output = program.output
            text = "\n".join(filter(None, [output.printed, output.message]))
            slide.append(Markup("<h3>What it printed</h3>"))
            slide += [PrintedText(text)] if text else []
            slide.append(draft.prose(lesson.program.output_says))
        yield Block(slide, tag="section")


def _first_state(figure: Figure, folio: Folio) -> DrawnFigure:
    """A figure as paper shows it."""
    drawn = figures.draw(play_states.first_alone(figure, folio), folio)
    return drawn_once(drawn, with_numbers=False)


def _kept(mode: Mode, draft: Draft) -> Parts:
    """What to keep of a lesson."""
    lesson = draft.topic.lessons[mode].model
    if isinstance(lesson, DeepFile):
        yield draft.lines(lesson.takeaways)
    else:
        yield draft.prose(getattr(lesson, "takeaway", lesson.introduction))


def _posed(name: str, called: str, draft: Draft) -> PosedQuestion:
    return PosedQuestion(called, draft.question(draft.items[name], "question"))


def _questions(plan: Lecture, draft: Draft) -> Parts:
    """Questions for students to answer on paper."""
    if plan.paper:
        yield Markup("<h1>{}: questions</h1>").format(draft.folio.line(draft.topic.file.title))
        yield Markup('<p class="pb-name">Name</p>')
    for number, name in enumerate(plan.paper, 1):
        yield _posed(name, str(number), draft)


def _answers(plan: Lecture, draft: Draft) -> Parts:
    """All questions with their answers."""
    yield Markup("<h1>{}: answers</h1>").format(draft.folio.line(draft.topic.file.title))
    called = [(f"Question {plan.letter(mode)}", name) for mode, name in plan.asked.items()]
    numbered = [(str(number), name) for number, name in enumerate(plan.paper, 1)]
    for number, name in called + numbered:
        yield AnsweredQuestion(number, draft.question(draft.items[name], "question"))


def _lab(_plan: Lecture, draft: Draft) -> Parts:
    """The task of the topic's first lab."""
    if not draft.topic.labs:
        return
    written = draft.topic.labs[draft.sheet.lab or ""].model
    yield Markup("<h1>{}</h1>").format(draft.folio.line(written.title))
    figure = draft.topic.figures[written.figure] if written.figure else None
    yield from labs.task(draft, [_first_state(figure, draft.folio)] if figure else [])


def _mistakes(plan: Lecture, draft: Draft) -> Parts:
    """What students often get wrong, with the evidence against it."""
    if not plan.beliefs:
        return
    title = Markup("<h1>{}: what students often get wrong</h1>")
    yield title.format(draft.folio.line(draft.topic.file.title))
    yield Markup(
        "<p>Each belief stands behind wrong answers to questions of this topic, the first one "
        "behind most. The claim beside a belief contradicts it.</p>"
    )
    titles = ["Belief", "What runs showed", "#Predicted", "#Observed"]
    yield Table(titles, [_refuted(*pair) for pair in plan.beliefs], is_headed=False)


def _refuted(belief: Markup, claim: JudgedClaim) -> Row:
    """A belief, and the claim against it with both sides."""
    says = claim.says + (f" ({claim.words})" if claim.words != "holds" else "")
    if claim.formula:
        says += Markup("<br><small>Compared: {}</small>").format(claim.formula)
    says += claims.regime_words(claim) or Markup("<br>")
    runs = Markup(", ").join(map(breakable, claim.runs))
    says += Markup("<small>Run{}: {}</small>").format("s" * (len(claim.runs) > 1), runs)
    return [Markup("“{}”").format(belief), says, claim.predicted, claim.observed]


PARTS: dict[str, tuple[str, Callable[[Lecture, Draft], Parts]]] = {
    "plan": ("Plan", _plan),
    "slides": ("Slides", _slides),
    "questions": ("Questions", _questions),
    "answers": ("Answers", _answers),
    "lab": ("Lab", _lab),
    "mistakes": ("What students often get wrong", _mistakes),
}


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
