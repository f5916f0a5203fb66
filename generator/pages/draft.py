"""A page while it is composed: elements of what authors wrote and what runs gave, in order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from markdown.extensions.toc import slugify, unique  # type: ignore[import-untyped]
from markupsafe import Markup, escape

from proofbook.generator.content.book import Topic
from proofbook.generator.content.exhibit import ExplainedProgram, Listing
from proofbook.generator.content.lesson import LessonFile, LessonTable
from proofbook.generator.pages.elements import element, programs, tables
from proofbook.generator.pages.page import Gathered
from proofbook.generator.pages.sheets import Sheet
from proofbook.generator.pages.views import claims
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import Text, plain

LessonT = TypeVar("LessonT", bound=LessonFile)


class Links:
    """Links from the words of a page to the glossary; of this class none."""

    def __init__(self) -> None:
        self.used: set[str] = set()  # ids of the terms that are linked

    def linked(self, text: Text) -> Text:
        """A text with its links."""
        return text


@dataclass
class Draft:
    """One page while it is composed; each method makes elements of what it is given."""

    sheet: Sheet
    folio: Folio
    links: Links
    gathered: Gathered
    _taken: set[str] = field(default_factory=set)  # anchors of headings
    _above: int = 1  # the level of the last heading

    def lesson(self, model: type[LessonT]) -> LessonT:
        """The file of the page's lesson, of the model of its mode."""
        assert self.sheet.mode
        lesson = self.topic.lessons[self.sheet.mode].model
        assert isinstance(lesson, model)
        return lesson

    @property
    def topic(self) -> Topic:
        """The page's topic."""
        assert self.sheet.topic
        return self.sheet.topic

    # --- words

    def line(self, text: str) -> Markup:
        """An author's line with the page's links to terms."""
        return self.links.linked(self.folio.line(text))

    def prose(self, text: str) -> Markup:
        """An author's paragraphs with the page's links to terms."""
        return self.links.linked(self.folio.prose(text))

    def texts(self, *written: str | None) -> list[Markup]:
        """Those texts that there are, as paragraphs."""
        return [self.prose(text) for text in written if text]

    def heading(
        self, level: int, words: str, number: int | None = None, *, anchor: str = "",
        css: str = "", is_listed: bool = True,
    ) -> element.Heading:  # fmt: skip
        """A heading with the anchor of its words, or the one that is given."""
        html = escape(words)
        own = slugify(f"{number or ''} {html.striptags()}".strip(), "-")
        self._above = level
        place = anchor or unique(own, self._taken)
        return element.Heading(level, html, place, number, css, is_listed, not anchor)

    def lede(self, text: str) -> element.Block:
        """The sentences with which a page begins."""
        return element.Block([self.prose(text)], "pb-lede")

    def opening(self, words: str | Markup) -> element.Block:
        """The paragraph with which a page begins that lists others."""
        return element.Block([Markup("<p>{}</p>").format(words)], "pb-lede")

    def passage(
        self, title: str, text: str, number: int | None = None, level: int = 2
    ) -> Iterator[element.Element]:
        """A heading, numbered if a number is given, and a text below it."""
        yield self.heading(level, title, number)
        yield element.Block([self.prose(text)])

    def lines(self, texts: Iterable[str], tag: str = "ul") -> element.ListOfLines:
        """Lines as a list."""
        return element.ListOfLines([self.line(text) for text in texts], tag)

    def insight(self, text: str) -> element.Block:
        """The sentence to keep."""
        return element.Block([self.prose(text)], "pb-insight")

    def kept(self, lesson: LessonFile) -> element.Element | Markup:
        """What to keep of a lesson: its takeaways, or else its introduction."""
        if takeaways := getattr(lesson, "takeaways", None):
            return self.lines(takeaways)
        return self.prose(getattr(lesson, "takeaway", lesson.introduction))

    # --- programs, claims

    def program(self, written: Listing) -> programs.ListedProgram:
        """A listing with what its run printed."""
        return programs.listing(written, self.folio)

    def notes(self, program: ExplainedProgram) -> element.Made:
        """What the lines of a program do."""
        return programs.notes(program, self.folio, self.links.linked)

    def explained(self, program: ExplainedProgram) -> list[element.Element | Markup]:
        """What a program printed; the program closed, because the text has said how it works."""
        listed = self.program(program)
        whole = programs.WholeProgram(listed, self.notes(program))
        return [listed.output, self.prose(program.output_says), whole]

    def waiting(
        self, item: str | None, what: str, content: Iterable[element.Element | Markup]
    ) -> element.Waiting | element.Block:
        """Content that waits for the answer to a question, if one is named."""
        inside = list(content)
        return element.Waiting(item, plain(what), inside) if item else element.Block(inside)

    def verdicts(self, names: Sequence[str]) -> Iterator[element.Element]:
        """A table of claims with their verdicts, if there are any."""
        return claims.verdict_table(claims.verdict_rows(names, self.folio))

    def backing(
        self, names: Sequence[str], sources: Sequence[str] = ()
    ) -> Iterator[element.Element]:
        """Claims with their verdicts and references, folded; a contrary verdict stands above."""
        if names or sources:
            yield from claims.backing(names, sources, self.folio)

    # --- tables

    def table(self, table: LessonTable, first: str) -> Iterator[element.Element | Markup]:
        """A table of values, and what to see in it."""
        yield tables.of_values(table, self.folio, first)
        yield from self.texts(table.afterword)
