"""What is known of a page from its elements: its headings, assets and minutes, and for the search.

Flow: the content of a page in; facts out. Nobody reads them off its HTML.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from markupsafe import Markup, escape

from generator.pages.draft import Draft
from generator.pages.elements.element import Content, Element, Heading, NarrowingField, walk
from generator.pages.elements.figures import DrawnFigure, PlayedFigure
from generator.pages.elements.programs import CopiedCommand
from generator.pages.elements.questions import Exhibit, Pairs, Pieces, Question, TypedField
from generator.pages.elements.tables import Table
from generator.pages.handwritten import WrittenMarkdown
from generator.pages.recall import Sitting
from generator.pages.views.costs import OperatedCalculator
from generator.pages.views.glossary import Terms
from generator.pages.views.guide import RunQuestions, TechniqueTable
from generator.pages.views.home import GoOn, MemoryGame, Progress, TopicMap, WayList
from generator.pages.views.plans import PlanPlay
from generator.pages.views.statements import TestedStatement
from generator.printing.folio import Folio
from generator.printing.markdown import Text

# Besides its words, a page takes a minute for each question and for each figure to operate. A
# reader took 70 minutes for six pages that these rates give 68.
WORDS_PER_MINUTE = 180
# Which script and style sheet a page takes: those that one of its elements needs. Where answers are
# kept, proofbook.js comes before any.
SCRIPTS: dict[str, tuple[type[Element], ...]] = {
    "page": (Element,),
    "proofbook": (GoOn, Progress, Question, Sitting, TopicMap, WayList),
    "sources": (PlanPlay, PlayedFigure, Table, TechniqueTable),
    "schedule+kinds+question": (Question,),
    "pieces": (Pairs, Pieces),
    "numbers": (TypedField,),
    "asked": (Question,),
    "recall": (Sitting,),
    "figures": (DrawnFigure, PlanPlay),
    "player": (),
    "play": (PlanPlay, PlayedFigure),
    "calculator": (OperatedCalculator,),
    "home": (MemoryGame,),
    "narrow": (NarrowingField,),
    "copies": (CopiedCommand, PlanPlay),
    "formulas": (),
}
SHARED = ("page", "proofbook", "sources", "schedule+kinds+question")  # by most pages
STYLES: dict[str, tuple[type[Element], ...]] = {
    "assets/asking.css": (),
    "assets/calculator.css": (OperatedCalculator,),
    "assets/glossary.css": (Terms,),
    "assets/guide.css": (RunQuestions, TechniqueTable),
    "assets/home.css": (MemoryGame,),
    "assets/indexes.css": (TopicMap, WayList),
    "assets/markup.css": (),
    "assets/play.css": (PlanPlay, PlayedFigure),
    "assets/recall.css": (Sitting,),
    "assets/retracted.css": (TestedStatement,),
    "assets/summary.css": (),
}
PLAIN_KINDS = (
    "choice",
    "several",
    "number",
)  # of questions, which need no style sheet of their own
JOINT = "+"  # between the names of scripts that a page loads as one file
LEVEL, FEWEST = 2, 5  # of the headings in a list of contents


@dataclass
class SearchPart:
    """What the search finds at a place of a page: a title, and the words below it."""

    anchor: str
    title: Markup
    words: list[Markup] = field(default_factory=list)
    is_first: bool = False

    def __html__(self) -> str:
        """A section, as Material's search reads it; the first is the page's."""
        section = Markup('<h{} id="{}">{}</h{}>{}')
        level = 2 - self.is_first
        read = (_text(part).read.replace("<br>", "<br> ") for part in [self.title, *self.words])
        title, *words = map(Markup, read)
        return section.format(level, self.anchor, title, level, Markup(" ").join(words))


def headings(content: Content) -> list[Heading]:
    """The headings of a page that have an anchor of their words."""
    of_markdown = (part.headings for part in content if isinstance(part, WrittenMarkdown))
    own = (part for part in walk(content) if isinstance(part, Heading) and part.is_anchored)
    return [*own, *chain.from_iterable(of_markdown)]


def contents(written: Sequence[Heading]) -> list[tuple[str, Markup]]:
    """Pairs of anchor and words, of headings of level 2, or 2 and 3 if few; [] if still few."""
    for deepest in (LEVEL, LEVEL + 1):
        listed = [part for part in written if LEVEL <= part.level <= deepest and part.is_listed]
        if len(listed) >= FEWEST:
            return [(heading.anchor, heading.words) for heading in listed]
    return []


def scripts(content: Content, draft: Draft, *, has_ways: bool) -> list[str]:
    """Scripts that the content needs, names joined by `+` in two strings: shared, others."""
    plays = [part.play for part in walk(content) if isinstance(part, PlayedFigure)]
    has_variants = any(isinstance(part, Sitting) and part.variants for part in walk(content))
    is_needed = {
        "proofbook": has_ways,
        "sources": bool(draft.folio.sources.values or draft.links.used),
        "player": any(play.moments for play in plays),
        "pieces": has_variants,
        "numbers": has_variants,
        "formulas": "formula" in draft.folio.markup,
    }
    names = [
        name for name, kinds in SCRIPTS.items()
        if name == "page" or is_needed.get(name) or _has(content, kinds)
    ]  # fmt: skip
    parts = ([name for name in names if (name in SHARED) is shared] for shared in (True, False))
    return [JOINT.join(part) for part in parts if part]


def styles(content: Content, draft: Draft) -> list[str]:
    """Names of the style sheets that few pages need, and the content does."""
    asked = {part.item.kind for part in walk(content) if isinstance(part, Question)}
    drawn = [part.figure for part in walk(content) if isinstance(part, Exhibit) and part.figure]
    drawn += [part.of for part in walk(content) if isinstance(part, DrawnFigure)]
    is_needed = {
        "assets/asking.css": bool(asked.difference(PLAIN_KINDS)),
        "assets/markup.css": bool(draft.folio.markup & {"formula", "footnote", "admonition"}),
        "assets/play.css": any(figure.picture.play for figure in drawn),
        "assets/summary.css": draft.sheet.kind == "summary",
    }
    return [
        name for name, kinds in STYLES.items()
        if is_needed.get(name) or _has(content, kinds)
    ]  # fmt: skip


def _has(content: Content, kinds: tuple[type[Element], ...]) -> bool:
    return any(isinstance(part, kinds) for part in walk(content))


def claims(content: Content, folio: Folio) -> frozenset[str]:
    """The claims that a page links."""
    asked = [part for part in walk(content) if isinstance(part, Question)]
    behind = [backing for question in asked for backing in question.every_backing]
    linked = {backing.href.partition("#claim-")[2] for backing in behind if backing.says}
    return frozenset(folio.linked_claims | linked)


def natures(content: Content, folio: Folio) -> list[tuple[str, str]]:
    """The natures of numbers on a page, also of hidden ones, each with its meaning."""
    captions = (part.caption for part in walk(content) if isinstance(part, Table))
    marks = " ".join([*folio.natures, *captions])
    return [(word, means) for word, means in folio.ui["natures"].items() if word in marks]


def minutes(content: Content, folio: Folio) -> int:
    """Reading minutes of a page, from its words, questions and figures to operate."""
    num_plays = sum(isinstance(part, PlayedFigure) for part in walk(content))
    num_words = sum(_text(words).num_words for words in _read(content))
    return max(1, round(num_words / WORDS_PER_MINUTE + len(folio.items) + num_plays))


def _text(words: Markup) -> Text:
    return words if isinstance(words, Text) else Text(words)


def _read(content: object) -> Iterator[Markup]:
    """Words that are read as the page is read."""
    if isinstance(content, Markup):
        yield content
    elif isinstance(content, Element):
        yield from [content.above] if isinstance(content, Question) else []
        yield from _read([*content.parts()] if content.is_read else [])
    elif isinstance(content, list | tuple):
        for part in content:
            yield from _read(part)


def searched(content: Content, heading: Heading, *, is_markdown: bool) -> str:
    """The sections of a page as the search shows them, as HTML that Material reads.

    Of a page that is Markdown, only those of its elements: MkDocs knows the rest.
    """
    sections = [SearchPart(heading.anchor, heading.html, is_first=True)]
    elements = [part for part in content if not isinstance(part, WrittenMarkdown)]
    _gather(elements, sections, sections[0], is_found=True)
    return "".join(section.__html__() for section in sections[is_markdown:])


def _gather(
    content: Iterable[Element | Markup], sections: list[SearchPart], own: SearchPart, *,
    is_found: bool,
) -> SearchPart:  # fmt: skip
    """Add to `sections` what the search finds, first in the section `own`; the last one."""
    for part in content:
        if isinstance(part, Heading) and part.is_listed and is_found:
            own = SearchPart(part.anchor, part.html)
            sections.append(own)
        elif isinstance(part, Markup | Heading):
            words = part.html if isinstance(part, Heading) else part
            own.words.extend([words] if is_found else [])
        elif isinstance(part, PlayedFigure):  # its title names quantities and answers nothing
            sections.append(SearchPart(f"figure-{part.id}", part.of.title))
            _gather([*part.parts()][1:], sections, sections[-1], is_found=is_found)
        elif isinstance(part, Table):
            _gather_rows(part, sections, own, is_found=is_found and part.is_found)
        else:
            within = is_found and part.is_found
            own = _gather(part.parts(), sections, own, is_found=within)
    return own


def _gather_rows(
    table: Table, sections: list[SearchPart], own: SearchPart, *, is_found: bool
) -> None:
    """Each row with an anchor is a section; of others, and of the head, the words are found."""
    if not is_found:
        return
    own.words += [escape(title.removeprefix("#")) for title in table.titles]
    for row, anchor in zip(table.rows, table.ids, strict=True):
        section, cells = own, table.words_of(row)
        if anchor:
            section = SearchPart(anchor, escape(row[0]))
            sections.append(section)
            cells = cells[1:]
        section.words += cells
