"""A class on a topic, to print: its plan, slides, questions and answers apart, a lab, mistakes.

In: a checked book and a topic. Out: documents of HTML that hold all they need.
"""

from collections import Counter
from itertools import chain, zip_longest
from typing import NamedTuple

from markupsafe import Markup

from generator.content.book import Topic
from generator.content.lesson import Mode
from generator.content.quiz import Item
from generator.content.typesetting import unlinked
from generator.items.kinds import kind_of
from generator.pages.page import TEMPLATES, Gathered, Sheet, environment, start_page
from generator.pages.view import View
from generator.pages.views.claims import verdict_row
from generator.printing.folio import Folio
from generator.values.evaluation import Evidence
from generator.website.publish import ASSETS, style

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


class Step(NamedTuple):
    """A step of a class: a mode that it shows, or one of its other parts; and its minutes."""

    name: str
    begins: int
    ends: int


class Plan(NamedTuple):
    """What a class shows, asks and explains."""

    shown: list[Mode]
    asked: dict[Mode, str]  # the question that students vote on before a mode is shown
    letters: dict[Mode, str]  # by which a class calls these questions
    steps: list[Step]
    paper: list[str]
    beliefs: list[View]


def documents(evidence: Evidence, topic: Topic) -> dict[str, bytes]:
    """`{file name: bytes}`: a class on a topic as self-contained HTML, no part without content."""
    sheets = ASSETS / "asking.css", TEMPLATES / "exported/class.css"
    css = style().decode() + "".join(path.read_text(encoding="utf-8") for path in sheets)
    files = {}
    lab = next(iter(topic.labs), None)
    for part in PARTS:
        sheet = Sheet("class.md", "exported/class.html.j2", "", "", topic=topic, lab=lab)
        folio, context = start_page(sheet, Gathered(evidence, {}, {}))
        plan = plan_of(topic, folio)
        needs = {"lab": lab, "mistakes": plan.beliefs, "questions": plan.paper}
        if not needs.get(part, True):
            continue
        page = environment().get_template(sheet.template)
        more = {"minutes": MINUTES, "num_in_class": min(len(plan.paper), IN_CLASS)}
        html = page.render(context, part=part, plan=plan, css=css, on_slides=on_slides, **more)
        files[f"{part}.html"] = unlinked(html).encode()
    return files


def plan_of(topic: Topic, folio: Folio) -> Plan:
    """The `Plan` of a class: steps with minutes, questions to vote on, and for paper."""
    modes = [mode for mode in SHOWN if mode in topic.lessons][:3]
    recalled = topic.items_by_mode.get("recall", topic.items)  # not only on their own page
    names = {name for name in recalled if _fits_paper(topic.items[name], folio)}
    asked: dict[Mode, str] = {}
    for mode in modes:
        for name in topic.items_by_mode[mode]:
            if topic.items[name].kind == "choice" and name in names - {*asked.values()}:
                asked[mode] = name  # hands are raised for one of its options
                break
    paper, beliefs = _on_paper(topic, names - {*asked.values()}), _beliefs(topic, folio)
    others = {"beliefs": beliefs, "paper": paper, "lab": topic.labs}
    steps = _timed([*modes, *(step for step, needs in others.items() if needs)])
    return Plan(modes, asked, dict(zip(asked, "ABC", strict=False)), steps, paper, beliefs)


def on_slides(program: View) -> list[Markup]:
    """Parts of a listing's code, as HTML, a slide each; the last leaves space for the output.

    A part begins with a line that is not indented, where it can after an empty one.
    """
    lines, rest = program.code.splitlines(), len(program.printed.splitlines()) + EXPLAINED
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
    return [Step(*step) for step in zip(steps, [0, *ends], ends, strict=False)]


def _on_paper(topic: Topic, names: set[str]) -> list[str]:
    """The first of these questions that each page asks, then the second."""
    by_mode = (own for mode, own in topic.items_by_mode.items() if mode != "recall")
    in_turn = dict.fromkeys(chain.from_iterable(zip_longest(*by_mode, topic.items)))
    return [name for name in in_turn if name in names][:ON_PAPER]


def _fits_paper(quiz_item: Item, folio: Folio) -> bool:
    """Whether a sheet of paper can ask it: a program to search would fill a page."""
    kind = kind_of(quiz_item, folio.evidence)
    return kind.is_graded and not kind.key.is_open and kind.form != "lines"


def _beliefs(topic: Topic, folio: Folio) -> list[View]:
    """`View`s of a topic's most frequent misconceptions, each with the claim that refutes it."""
    parts = (
        part
        for quiz_item in topic.items.values()
        for key in ("options", "slips", "lines")
        for part in getattr(quiz_item, key, ())
    )
    named = Counter(part.misconception for part in parts if part.misconception)
    misconceptions = [folio.book.misconceptions[name] for name, _ in named.most_common(BELIEFS)]
    return [
        View(belief=folio.line(wrong.belief), row=verdict_row(wrong.refuted_by, folio))
        for wrong in misconceptions
    ]
