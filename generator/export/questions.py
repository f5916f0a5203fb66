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

from generator.content import prose
from generator.content.book import Topic
from generator.content.listed_code import anonymized
from generator.items.answers import Backing, ExplainedAnswer
from generator.items.kinds.arranged import Ordering
from generator.items.kinds.picked import FaultyLine
from generator.pages.elements import questions as question
from generator.pages.elements.programs import RunOutput, printed
from generator.pages.elements.tables import Table
from generator.printing.folio import Folio
from generator.printing.markdown import Text, bare, plain
from generator.values.evaluation import Evidence
from generator.values.value import Value
from generator.website.publish import STYLES
from runners.core.trace.fields import NBSP

_MARK = r"(?:[(:]|, |\bare) ?{}[,.)]"  # beside a number, or below a table or figure
_LIGHT = re.compile(r"light-dark\(([^,]+),[^;]+\)(?=[;}])")
ARRANGED = ("order", "match")
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
        for term in folio.book.terms
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
    quiz_item, kind, field = asked.item, str(asked.item.kind), asked.field
    stem, files = str(folio.prose(quiz_item.stem)), dict[str, bytes]()
    for _, address in prose.images(quiz_item.stem):
        image = folio.book.root / "content/topics" / topic.id / address
        file = f"{quiz_item.id}-{image.name}"
        files[file] = image.read_bytes()
        stem = stem.replace(f'src="{address}"', f'src="{file}"')
    exhibited, drawings = _exhibit(asked.exhibit, quiz_item.id)
    files |= drawings
    stem += f"{_table(asked.opened)}{exhibited}"
    explains = str(asked.explains)
    if isinstance(quiz_item, FaultyLine):
        wrong, right = (
            _pre(anonymized(folio.book.root, code.path, code.object))
            for code in (quiz_item.wrong, quiz_item.right)
        )
        asks = "" if "Which line" in quiz_item.stem else "<p>Which line is at fault?</p>"
        kind = "choice"
        stem += f"{asks}{wrong}{_run_output(printed(quiz_item.wrong.run, folio))}"
        explains += f"<p>Corrected:</p>{right}"
    elif isinstance(quiz_item, Ordering) and quiz_item.ends:
        first, last = map(folio.line, quiz_item.ends)
        stem += f"<p>First: {first}. Last: {last}.</p>"
    elif field and field.is_number:
        unit = f" ({escape(field.unit.label)})" if field.unit.label else ""
        stem += f"<p>Type a number{unit}.</p>"
    elif field:
        kind = "shape"
    if asked.backing:
        explains += f"<p>{_evidence_words(asked.backing)}</p>"
    replies = [_reply(answer, field.unit.scale if field else 1) for answer in asked.answers]
    by_position = {reply.position: reply for reply in replies}
    texts = "".join(f"{reply.text} {reply.beside}" for reply in replies)
    shows = plain(stem + texts * (field is None))
    tells = plain(explains + texts + "".join(reply.why for reply in replies))
    used = {says: form.search(shows) for form, says in words if form.search(shows + tells)}
    stem += _paragraphs(says for says, is_shown in used.items() if is_shown)
    explains += _paragraphs(says for says, is_shown in used.items() if not is_shown)
    solved = _solution_list(kind, replies) if kind in ARRANGED else ""
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
        solution=Markup((solved + explains).strip()),
        hints=asked.hints,
        pictures=files,
    )


def _reply(answer: ExplainedAnswer, scale: float) -> Reply:
    reach, is_right, numbers = answer.reach, answer.verdict == "right", list[str]()
    if reach and reach.number is not None:
        ends = reach.number - reach.within, reach.number + reach.within
        in_unit = (f"{number / scale:.12g}" for number in (reach.number, reach.within, *ends))
        numbers = [f"{Decimal(number):f}" for number in in_unit]  # no reader of GIFT takes 1e-6
    why = Markup(f"{answer.why} {_evidence_words(answer.backing)}".strip())
    name = f"r{answer.position}" if is_right or reach is None else f"slip{answer.position}"
    beside = answer.beside or Markup()
    return Reply(name, answer.position, answer.text, is_right, why, beside, *numbers)


def _solution_list(kind: str, replies: Iterable[Reply]) -> str:
    """Why pieces and pairs belong where they do."""
    lines = (
        f"{reply.text}{': ' if reply.beside else ''}{reply.beside}<br/>{reply.why}"
        for reply in replies
    )
    tag = "ol" if kind == "order" else "ul"
    return f"<{tag}>{''.join(f'<li>{line}</li>' for line in lines)}</{tag}>"


def _evidence_words(backing: Iterable[Backing]) -> str:
    """What shows it, in words."""
    sentences = []
    for proof in backing:
        if proof.belief:
            sentences.append(f"The misconception: “{proof.belief}”")
        if proof.says:
            against, verdict = " against it" * bool(proof.belief), f" ({proof.verdict})"
            sentences.append(f"The proof{against}: {proof.says}{verdict * bool(proof.verdict)}")
    return " ".join(sentences)


def _paragraphs(words: Iterable[str]) -> str:
    return "".join(f"<p>{word}</p>" for word in words)


def _table(table: Table | None) -> str:
    """A table of values; nothing where there is none."""
    if table is None:
        return ""
    head = "".join(f"<th>{title.removeprefix('#')}</th>" for title in table.titles)
    body = ("".join(f"<td>{cell}</td>" for cell in row) for row in table.rows)
    lines = "".join(f"<tr>{row}</tr>" for row in (head, *body))
    noted = f"<p>The runs of this table are {table.caption}.</p>" if table.caption else ""
    return f"<table><tbody>{lines}</tbody></table>{noted}"


def _exhibit(exhibit: question.Exhibit | None, name: str) -> tuple[str, dict[str, bytes]]:
    """What stands below a stem, a figure, code, or what a run printed; and the figure's files."""
    if exhibit is None:
        return "", {}
    figure, html, files = exhibit.figure, "", dict[str, bytes]()
    if figure:
        drawn, files = _as_files(str(exhibit.drawing), name)
        natures = f"<p>Runs drawn here: {figure.natures}.</p>" if figure.natures else ""
        html = f"<p>{figure.title}</p>{drawn}{natures}"
    if exhibit.program:
        html += _pre(plain(exhibit.program.code))
    outputs = (exhibit.program.output if exhibit.program else None, exhibit.printed)
    return html + "".join(_run_output(output) for output in outputs if output), files


def _run_output(run: RunOutput) -> str:
    """What a program printed, and how it ended if it failed."""
    texts = "".join(_pre(text) for text in (run.printed, run.message) if text)
    return f"<p>It printed:</p>{texts}" if texts else f"<p>It printed nothing ({run.status}).</p>"


def _pre(code: str) -> str:
    return f"<pre>{escape(code.strip())}</pre>"


# --- pictures as files


def _as_files(drawing: str, name: str) -> tuple[str, dict[str, bytes]]:
    """(HTML of a drawing, its SVG replaced by `<img>` of files; their bytes by names of `name`)."""
    for around in (' class="pb-view"', "<div>", "</div>"):
        drawing = drawing.replace(around, "")
    html, *drawings = drawing.split("<svg ")
    files: dict[str, bytes] = {}
    for number, svg in enumerate(drawings, 1):
        head, _, within = svg.partition(">")
        within, end, after = within.partition("</svg>")
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
