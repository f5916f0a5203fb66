"""Items → questions as other programs hold them: HTML without links, classes and scripts.

In: a checked book. Out: a `View` for each item in each of its cases, in the order of the topics. No
item is among them that has no key here, or that Recall leaves out.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal

from markupsafe import Markup, escape

from generator.content.book import Topic
from generator.content.listed_code import anonymized
from generator.content.typesetting import plain
from generator.export.pictures import pictured
from generator.items.answers import Backing, ExplainedAnswer
from generator.items.kinds.arranged import Ordering
from generator.items.kinds.picked import FaultyLine
from generator.pages.view import View
from generator.pages.views import question
from generator.pages.views.listing import printed
from generator.printing.folio import Folio
from generator.values.evaluation import Evidence
from runners.core.trace.fields import NBSP

_MATH = re.compile(r"<math\b([^>]*)>.*?<annotation\b[^>]*>(.*?)</annotation>.*?</math>", re.DOTALL)
_DROPPED = re.compile(r"</?(?:a|span|wbr|div)\b[^>]*>")
_SMALL = re.compile(r"<small[^>]*>(.*?)</small>")
_MARK = r"(?:[(:]|, |\bare) ?{}[,.)]"  # beside a number, or below a table or figure
_TAG = re.compile(r"<(?!img\b)(\w+)\b[^>]*?( ?/)?>")


def questions(
    evidence: Evidence, topics: Iterable[Topic]
) -> tuple[list[View], dict[str, list[str]]]:
    """The questions of some topics, and the ids of the items that are none, by the reason."""
    found: list[View] = []
    left = defaultdict[str, list[str]](list)
    for topic in topics:
        folio = Folio(evidence, evidence).in_link
        words = _words(folio)
        for item in topic.items.values():
            asked = question.question(item, folio, "question")
            if asked.is_open:
                left["the runs leave open what is right"].append(item.id)
            elif item.id not in topic.items_by_mode.get("recall", topic.items):
                left["they make sense on their own page only"].append(item.id)
            else:
                every = [asked, *question.variants(item, folio, "question")]
                alike = f"{item.id}: {question.in_short(item, folio)}" if len(every) > 1 else ""
                found += [_question(one, topic, folio, words, alike) for one in every]
    return found, left


def tidy(markup: str) -> Markup:
    """HTML that any program shows: formulas as LaTeX, no links, elements without attributes."""
    text = _SMALL.sub(r"(\1)", _DROPPED.sub("", _MATH.sub(_latex, str(markup))))
    return Markup(_TAG.sub(lambda tag: f"<{tag[1]}{'/' if tag[2] else ''}>", text).strip())


def _latex(formula: re.Match[str]) -> str:
    return rf"\[{formula[2]}\]" if "block" in formula[1] else rf"\({formula[2]}\)"


def _words(folio: Folio) -> list[tuple[re.Pattern[str], Markup]]:
    """What to explain to a reader without the book: its own words, and those beside numbers."""
    marks = ((_MARK.format(name), name, says) for name, says in folio.ui["natures"].items())
    own = [
        (rf"\b(?:{'|'.join(map(re.escape, one.spellings))})\b", one.term, one.definition)
        for one in folio.book.terms
        if one.of_this_book
    ]
    return [
        (re.compile(form), Markup("<b>{}</b>: {}").format(word, folio.line(says)))
        for form, word, says in (*own, *marks)
    ]


def _question(
    asked: View,
    topic: Topic,
    folio: Folio,
    words: Iterable[tuple[re.Pattern[str], Markup]],
    alike: str,
) -> View:
    item, field, kind = asked.item, asked.field, asked.item.kind
    stem = f"{folio.prose(item.stem)}{_tabled(*asked.about)}{_exhibited(asked.exhibit)}"
    explains = str(asked.explains)
    if isinstance(item, FaultyLine):
        places = (item.wrong, item.right)
        wrong, right = (_pre(anonymized(folio.book.root, one.path, one.object)) for one in places)
        asks = "" if "Which line" in item.stem else "<p>Which line is at fault?</p>"
        kind, stem = "choice", f"{stem}{asks}{wrong}{_said(printed(item.wrong.run, folio))}"
        explains += f"<p>Corrected:</p>{right}"
    elif isinstance(item, Ordering) and item.ends:
        first, last = map(folio.line, item.ends)
        stem += f"<p>First: {first}. Last: {last}.</p>"
    elif field and field.is_number:
        unit = f" ({escape(field.unit.label)})" if field.unit.label else ""
        stem += f"<p>Type a number{unit}.</p>"
    elif field:
        kind = "shape"
    if asked.backing:
        explains += f"<p>{_backed(asked.backing)}</p>"
    stem, pictures = pictured(stem, item.id, folio.book.root / "content/topics" / topic.id)
    replies = [_reply(one, field.unit.scale if field else 1) for one in asked.answers]
    by_place = {one.place: one for one in replies}
    is_arranged = kind in ("order", "match")
    said = "".join(f"{one.text} {one.beside}" for one in replies)
    shows = plain(tidy(stem + said * (field is None)))
    tells = plain(tidy(explains + said + "".join(one.why for one in replies)))
    used = {says: form.search(shows) for form, says in words if form.search(shows + tells)}
    stem += _noted(says for says, is_shown in used.items() if is_shown)
    explains += _noted(says for says, is_shown in used.items() if not is_shown)
    sizes = plain(replies[0].text).replace(",", "").replace(NBSP, " ").split(" × ")
    return View(
        id=item.id,  # the item's; in a further case, with its number
        topic=topic.id,
        title=question.in_short(item, folio),  # what it asks
        alike=alike,  # of questions that one item asks in several cases, what they have in common
        topic_title=plain(folio.line(topic.file.title)),
        kind=kind,  # choice, several, order, match, number, shape, or predict, which is not graded
        stem=tidy(stem),
        replies=replies,  # those of an order in the right one
        shown=[] if field else [by_place[one.position] for one in asked.shown],  # in a page's order
        spellings=[sign.join(sizes) for sign in (" × ", "×", " x ", "x")],  # of a shape
        is_typed=field is not None,
        is_arranged=is_arranged,  # pieces or pairs, which are explained all at once
        solution=tidy(_arranged(kind, replies) * is_arranged + explains),  # said of any answer
        hints=[tidy(one) for one in asked.hints],
        pictures=pictures,  # files that the stem shows, by name
    )


def _reply(answer: ExplainedAnswer, scale: float) -> View:
    """An answer that can be given; of a number, also one that a mistake gives."""
    reach, is_right = answer.reach, answer.verdict == "right"
    numbers: Sequence[str] = ("", "", "", "")
    if reach and reach.number is not None:
        ends = reach.number - reach.within, reach.number + reach.within
        in_unit = (f"{one / scale:.12g}" for one in (reach.number, reach.within, *ends))
        numbers = [f"{Decimal(one):f}" for one in in_unit]  # no reader of GIFT takes 1e-6
    return View(
        id=f"r{answer.position}" if is_right or reach is None else f"slip{answer.position}",
        place=answer.position,
        text=tidy(answer.text),  # the option, the piece, the left side, or what is typed
        is_right=is_right,
        why=tidy(f"{answer.why} {_backed(answer.backing)}"),
        beside=tidy(answer.beside or ""),  # the right side, or the value that a piece is sorted by
        number=numbers[0],  # in the unit that the stem names
        within=numbers[1],
        low=numbers[2],
        high=numbers[3],
    )


def _arranged(kind: str, replies: Iterable[View]) -> str:
    """Why pieces and pairs belong where they do."""
    said = (f"{one.text}{': ' if one.beside else ''}{one.beside}<br/>{one.why}" for one in replies)
    tag = "ol" if kind == "order" else "ul"
    return f"<{tag}>{''.join(f'<li>{one}</li>' for one in said)}</{tag}>"


def _backed(backing: Iterable[Backing]) -> str:
    """What shows it, in words."""
    said = []
    for one in backing:
        if one.belief:
            said.append(f"The misconception: “{one.belief}”")
        if one.says:
            against, verdict = " against it" * bool(one.belief), f" ({one.verdict})"
            said.append(f"The evidence{against}: {one.says}{verdict * bool(one.verdict)}")
    return " ".join(said)


def _noted(words: Iterable[str]) -> str:
    return "".join(f"<p>{one}</p>" for one in words)


def _tabled(titles: Sequence[str], rows: Iterable[Iterable[str]], caption: str) -> str:
    """A table of values; nothing where there is none."""
    head = "".join(f"<th>{one.removeprefix('#')}</th>" for one in titles)
    body = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    lines = "".join(f"<tr>{one}</tr>" for one in (head, *body))
    noted = f"<p>The runs of this table are {caption}.</p>" if caption else ""
    return f"<table><tbody>{lines}</tbody></table>{noted}" if head else ""


def _exhibited(shown: View | None) -> str:
    """What stands below a stem: a figure, code, or what a run printed."""
    if shown is None:
        return ""
    figure, parts = shown.figure, []
    if figure:
        drawn = f"Runs drawn here: {figure.natures}." if figure.natures else ""
        says = f"{figure.caption if shown.has_caption else ''} {drawn}"
        parts += [f"<p>{figure.title}</p>", shown.drawing, f"<p>{says}</p>" if says.strip() else ""]
    if shown.program:
        parts.append(_pre(plain(shown.program.code)))
    parts += map(_said, filter(None, (shown.program, shown.printed)))
    return "".join(parts)


def _said(run: View) -> str:
    """What a program printed, and how it ended if it failed."""
    texts = "".join(_pre(text) for text in (run.printed, run.message) if text)
    return f"<p>It printed:</p>{texts}" if texts else f"<p>It printed nothing ({run.status}).</p>"


def _pre(code: str) -> str:
    return f"<pre>{escape(code.strip())}</pre>"
