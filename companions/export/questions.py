"""Items → questions as other programs hold them: HTML without links, classes and scripts.

In: a checked book. Out: an `ExportedQuestion` for each item in each of its cases, in the order of
the topics. No item is among them that has no key here, or that Recall leaves out.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

from markupsafe import Markup, escape
from rcssmin import cssmin  # type: ignore[import-untyped]

from proofbook.generator.content import prose
from proofbook.generator.content.book import Topic
from proofbook.generator.content.listed_code import anonymized
from proofbook.generator.kinds.glossary.glossary import Glossary
from proofbook.generator.kinds.questions import elements as question
from proofbook.generator.kinds.questions.answers import ExplainedAnswer
from proofbook.generator.kinds.questions.kinds.picked import FaultyLine
from proofbook.generator.pages.environment import macros
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import Text, bare, plain
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.value import Value
from proofbook.generator.website.publish import STYLES
from proofbook.runners.core.trace.fields import NBSP

_MARK = r"(?:[(:]|, |\bare) ?{}[,.)]"  # beside a number, or below a table or figure
_LIGHT = re.compile(r"light-dark\(([^,]+),[^;]+\)(?=[;}])")
ARRANGED = ("order", "match")
BARE = "export/forms/question.html.j2"
_PLAYED = ".pb-past{display:none}"  # the line of a player


@dataclass(frozen=True)
class Reply:
    """An answer that can be given; of a number, also one that a mistake gives."""

    id: str
    position: int
    text: Markup  # the option, the piece, the left side, or what is typed
    is_right: bool
    why: Markup
    beside: Markup  # the right side, or the value that a piece is sorted by
    number: str = ""  # in the unit that the stem names
    within: str = ""
    low: str = ""
    high: str = ""


@dataclass(frozen=True)
class ExportedQuestion:
    """A question as other programs hold it."""

    id: str  # the item's; in a further case, with its number
    topic: str
    title: str  # what it asks
    alike: str  # of questions that one item asks in several cases, what they have in common
    topic_title: str
    kind: str  # choice, several, order, match, number, shape, or predict, which is not graded
    stem: Markup
    replies: Sequence[Reply]  # those of an order in the right one
    shown: Sequence[Reply]  # in a page's order; none that is typed
    is_typed: bool
    solution: Markup  # said of any answer
    hints: Sequence[Markup]
    pictures: Mapping[str, bytes]  # files that the stem shows, by name

    @property
    def is_arranged(self) -> bool:
        """Whether it has pieces or pairs, which are explained all at once."""
        return self.kind in ARRANGED

    @property
    def spellings(self) -> list[str]:
        """The answer that is a shape, as people type it."""
        sizes = plain(self.replies[0].text).replace(",", "").replace(NBSP, " ").split(" × ")
        return [sign.join(sizes) for sign in (" × ", "×", " x ", "x")]


def questions(
    evidence: Evidence, topics: Iterable[Topic]
) -> tuple[list[ExportedQuestion], dict[str, list[str]]]:
    """(Questions to export, each item in all its cases; by reason, the ids of items left out)."""
    exported: list[ExportedQuestion] = []
    left = defaultdict[str, list[str]](list)
    for topic in topics:
        folio = BareFolio(evidence, evidence)
        words = _words(folio)
        for quiz_item in topic.items.values():
            asked = question.question(quiz_item, folio, "question")
            if asked.kind.key.is_open:
                left["the runs leave open what is right"].append(quiz_item.id)
            elif quiz_item.id not in topic.items_by_mode.get("recall", topic.items):
                left["they make sense on their own page only"].append(quiz_item.id)
            else:
                every = [asked, *question.variants(quiz_item, folio, "question")]
                short = question.in_short(quiz_item, folio)
                alike = f"{quiz_item.id}: {short}" if len(every) > 1 else ""
                exported += [_question(case, topic, folio, words, alike) for case in every]
    return exported, left


class BareFolio(Folio):
    """What any program shows: formulas as LaTeX, no links, elements without attributes."""

    def line(self, text: str) -> Text:
        """An author's line."""
        return bare(text, self.expression, inline=True)

    def prose(self, text: str) -> Text:
        """An author's prose."""
        return bare(text, self.expression, inline=False)

    def show(self, value: Value, claim: str = "", at: str = "") -> Text:
        """A value, and behind it its marks."""
        marks = ", ".join(self._marks(value))
        return Text(escape(f"{value} ({marks})" if marks else value))

    def printed(self, value: Value | None) -> Text:
        """A value; a dash for None."""
        return Text("–") if value is None else self.show(value)


def _words(folio: Folio) -> list[tuple[re.Pattern[str], Markup]]:
    """What to explain to a reader without the book: its own words, and those beside numbers."""
    marks = ((_MARK.format(name), name, says) for name, says in folio.ui["natures"].items())
    own = [
        (rf"\b(?:{'|'.join(map(re.escape, term.spellings))})\b", term.term, term.definition)
        for term in folio.book.part(Glossary).terms
        if term.of_this_book
    ]
    return [
        (re.compile(form), Markup("<b>{}</b>: {}").format(word, folio.line(says)))
        for form, word, says in (*own, *marks)
    ]


def _question(
    asked: question.Question,
    topic: Topic,
    folio: Folio,
    words: Iterable[tuple[re.Pattern[str], Markup]],
    alike: str,
) -> ExportedQuestion:
    quiz_item, field, bare = asked.item, asked.field, macros(BARE)
    written, files, drawn = str(folio.prose(quiz_item.stem)), dict[str, bytes](), ""
    for _, address in prose.images(quiz_item.stem):
        image = folio.book.root / "content/topics" / topic.id / address
        file = f"{quiz_item.id}-{image.name}"
        files[file] = image.read_bytes()
        written = written.replace(f'src="{address}"', f'src="{file}"')
    if asked.exhibit and asked.exhibit.figure:
        drawn, drawings = _as_files(str(asked.exhibit.figure.picture.still), quiz_item.id)
        files |= drawings
    kind, codes = "shape" if field and not field.is_number else str(quiz_item.kind), list[str]()
    if isinstance(quiz_item, FaultyLine):
        kind, root = "choice", folio.book.root
        both = quiz_item.wrong, quiz_item.right
        codes = [anonymized(root, code.path, code.object) for code in both]
    stem = str(bare["stem"](asked, Markup(written), Markup(drawn), codes))
    explains = str(bare["explains"](asked, codes))
    replies = [_reply(answer, field.unit.scale if field else 1) for answer in asked.answers]
    by_position = {reply.position: reply for reply in replies}
    texts = "".join(f"{reply.text} {reply.beside}" for reply in replies)
    shows = plain(stem + texts * (field is None))
    tells = plain(explains + texts + "".join(reply.why for reply in replies))
    used = {says: form.search(shows) for form, says in words if form.search(shows + tells)}
    stem += "".join(f"<p>{says}</p>" for says, is_shown in used.items() if is_shown)
    explains += "".join(f"<p>{says}</p>" for says, is_shown in used.items() if not is_shown)
    solved = bare["solution"](kind, replies) if kind in ARRANGED else ""
    return ExportedQuestion(
        id=quiz_item.id,
        topic=topic.id,
        title=question.in_short(quiz_item, folio),
        alike=alike,
        topic_title=plain(folio.line(topic.file.title)),
        kind=kind,
        stem=Markup(stem.strip()),
        replies=replies,
        shown=[by_position[answer.position] for answer in asked.shown if not field],
        is_typed=field is not None,
        solution=Markup(f"{solved}{explains}".strip()),
        hints=asked.hints,
        pictures=files,
    )


def _reply(answer: ExplainedAnswer, scale: float) -> Reply:
    reach, is_right, numbers = answer.reach, answer.verdict == "right", list[str]()
    if reach and reach.number is not None:
        ends = reach.number - reach.within, reach.number + reach.within
        in_unit = (f"{number / scale:.12g}" for number in (reach.number, reach.within, *ends))
        numbers = [f"{Decimal(number):f}" for number in in_unit]  # no reader of GIFT takes 1e-6
    why = macros(BARE)["why"](answer)
    name = f"r{answer.position}" if is_right or reach is None else f"slip{answer.position}"
    beside = answer.beside or Markup()
    return Reply(name, answer.position, answer.text, is_right, why.strip(), beside, *numbers)


# --- pictures as files


def _as_files(drawing: str, name: str) -> tuple[str, dict[str, bytes]]:
    """(HTML of a drawing, its SVG replaced by `<img>` of files; their bytes by names of `name`)."""
    for around in (' class="pb-view"', "<div>", "</div>"):
        drawing = drawing.replace(around, "")
    html, *drawings = drawing.split('<svg class="')  # not one within another
    files: dict[str, bytes] = {}
    for number, svg in enumerate(drawings, 1):
        head, _, within = svg.partition(">")
        within, end, after = within.rpartition("</svg>")
        title, _, described = within.partition("</title>")
        says = ". ".join(map(plain, (title, described.partition("</desc>")[0])))
        width, height = head.partition('viewBox="')[2].partition('"')[0].split()[2:]
        shape = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        begins = f'<svg xmlns="http://www.w3.org/2000/svg" class="pb-drawing" {shape}>'
        file = f"{name}-{number}.svg"
        files[file] = f"{begins}<style>{_style()}</style>{within}{end}".encode()
        html += f'<img src="{file}" alt="{escape(says)}"/>{after}'
    return html, files


@cache
def _style() -> str:
    parts = (
        (STYLES / f"{sheet}.css").read_text(encoding="utf-8") for sheet in ("palette", "drawings")
    )
    return str(escape(_LIGHT.sub(r"\1", cssmin("".join(parts))) + _PLAYED))
