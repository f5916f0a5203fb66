"""A topic → a class of it to print: documents of HTML that hold all they need.

In: a checked book and a topic. Out: the plan, slides, questions and answers apart, the topic's
first lab, and what students often get wrong with the evidence against it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, zip_longest
from pathlib import Path

from markupsafe import Markup

from proofbook.generator.content.book import Topic
from proofbook.generator.content.lesson import Mode
from proofbook.generator.kinds.lessons import parts
from proofbook.generator.kinds.lessons.words import LearnFile
from proofbook.generator.kinds.questions.kinds import kind_of
from proofbook.generator.pages.compose import begin
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Content, Element
from proofbook.generator.pages.elements.programs import ListedProgram
from proofbook.generator.pages.elements.tables import Table
from proofbook.generator.pages.environment import environment
from proofbook.generator.pages.page import Gathered
from proofbook.generator.pages.sheets import Sheet
from proofbook.generator.pages.views import claims
from proofbook.generator.pages.views.claims import JudgedClaim
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import plain, unlinked
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.website.publish import ASSETS, style
from proofbook.runners.system.kinds import filling

FORMS = Path(__file__).with_name("forms")
PARTS = ("plan", "slides", "questions", "answers", "lab", "mistakes")
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


@dataclass(frozen=True)
class Lecture:
    """A class of a topic; parts without content are empty."""

    topic: Markup
    folder: str  # of the topic's pages
    summary: Markup
    requires: Sequence[str]  # topics
    steps: Sequence[tuple[str, int, int]]  # a mode, `beliefs`, `paper` or `lab`, and its minutes
    # Of each that it shows the title, what it is for, and what to keep of it.
    lessons: Mapping[Mode, tuple[Markup, Markup, Element | Markup]]
    votes: Mapping[Mode, tuple[str, Element]]  # a letter, and the question that comes before it
    idea: Content
    program: ListedProgram | None  # the smallest of the topic
    codes: Sequence[Markup]  # the same, a slide each
    output_says: Markup
    laws: Table | None
    paper: Sequence[Element]  # questions
    mistakes: Sequence[tuple[Markup, JudgedClaim]]  # beliefs, each with the claim against it
    lab: Markup  # the title of the first
    task: Content


def documents(evidence: Evidence, topic: Topic) -> dict[str, bytes]:
    """`{file name: bytes}`: a class on a topic as self-contained HTML, no part without content."""
    sheets = ASSETS / "asking.css", FORMS / "class.css"
    css = style().decode() + "".join(path.read_text(encoding="utf-8") for path in sheets)
    sheet = Sheet("class.md", "class", "", "", topic=topic)
    plan = _lecture(begin(sheet, Gathered(evidence, {}, {})))
    needs = {"lab": plan.task, "mistakes": plan.mistakes, "questions": plan.paper}
    page, files = environment().get_template("export/forms/class.html.j2"), {}
    for part in (part for part in PARTS if needs.get(part, True)):
        html = page.render(part=part, lecture=plan, css=css, minutes=MINUTES, in_class=IN_CLASS)
        files[f"{part}.html"] = unlinked(html).encode()
    return files


def _lecture(draft: Draft) -> Lecture:
    topic, folio = draft.topic, draft.folio
    modes = [mode for mode in SHOWN if mode in topic.lessons][:3]
    recalled = topic.items_by_mode.get("recall", topic.items)  # not only on their own page
    kinds = {name: kind_of(topic.items[name], folio.evidence) for name in recalled}
    names = {  # that fit on paper, as a program to search would fill a page
        name for name, kind in kinds.items()
        if kind.is_graded and not kind.key.is_open and kind.places != "lines"
    }  # fmt: skip
    asked: dict[Mode, str] = {}
    for mode in modes:
        for name in topic.items_by_mode[mode]:
            if topic.items[name].kind == "choice" and name in names - {*asked.values()}:
                asked[mode] = name  # hands are raised for one of its options
                break
    votes = zip("ABC", asked.items(), strict=False)
    mistakes, paper = _mistakes(topic, folio), _on_paper(topic, names - {*asked.values()})
    tasks = (one for fill in filling("class") for one in fill(draft))
    lab, task = next(tasks, (Markup(), []))
    more = {"beliefs": mistakes, "paper": paper, "lab": task}
    titles = {other.id: other.file.title for other in folio.book.topics}
    summary = draft.prose(topic.file.summary)
    models = {mode: topic.lessons[mode].model for mode in modes}
    lessons = {
        mode: (folio.line(lesson.title), folio.line(topic.file.modes[mode]), draft.kept(lesson))
        for mode, lesson in models.items()
    }
    learn = models.get("learn")
    idea: Content = []
    program, output_says = None, Markup()
    if isinstance(learn, LearnFile):
        figure = parts.first_state(draft, topic.figures[f"learn#{learn.figure}"])
        idea = [draft.prose(learn.idea), figure]
        program, output_says = draft.program(learn.program), draft.prose(learn.program.output_says)
    laws = claims.verdict_rows(topic.file.key_laws, folio)
    return Lecture(
        topic=folio.line(topic.file.title),
        folder=f"topics/{topic.id}",
        summary=summary,
        requires=[plain(folio.line(titles[name])) for name in topic.file.requires],
        steps=_timed([*modes, *(step for step, content in more.items() if content)]),
        lessons=lessons,
        votes={
            mode: (letter, parts.item(draft, name, "question")[0]) for letter, (mode, name) in votes
        },
        idea=idea,
        program=program,
        codes=on_slides(program) if program else [],
        output_says=output_says,
        laws=claims.judged_table(laws, has_formula=True) if laws else None,
        paper=[question for name in paper for question in parts.item(draft, name, "question")],
        mistakes=mistakes,
        lab=lab,
        task=task,
    )


def _mistakes(topic: Topic, folio: Folio) -> list[tuple[Markup, JudgedClaim]]:
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


def _timed(steps: Sequence[str]) -> list[tuple[str, int, int]]:
    """The steps with their minutes, in multiples of `STEP` that fill the class."""
    weights = [WEIGHTS.get(step, OTHER_WEIGHT) for step in steps]
    past = accumulate(weights, initial=0)
    ends = [round(MINUTES * weight / sum(weights) / STEP) * STEP for weight in past]
    return list(zip(steps, ends, ends[1:], strict=False))


def _on_paper(topic: Topic, names: set[str]) -> list[str]:
    """The first of these questions that each page asks, then the second."""
    by_mode = (own for mode, own in topic.items_by_mode.items() if mode != "recall")
    in_turn = dict.fromkeys(chain.from_iterable(zip_longest(*by_mode, topic.items)))
    return [name for name in in_turn if name in names][:ON_PAPER]
