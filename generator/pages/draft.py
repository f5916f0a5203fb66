"""A page while it is composed: elements of what authors wrote and what runs gave, in order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from markdown.extensions.toc import slugify, unique  # type: ignore[import-untyped]
from markupsafe import Markup, escape

from proofbook.generator.content.book import Topic
from proofbook.generator.content.exhibit import ExplainedProgram, Figure, Listing
from proofbook.generator.content.lesson import Backed, LessonFile, LessonTable, Section
from proofbook.generator.figures import figures
from proofbook.generator.figures.play import states as play_states
from proofbook.generator.pages.elements import figures as figure_elements
from proofbook.generator.pages.elements import programs, questions, tables
from proofbook.generator.pages.elements.element import Block, Element, Heading, ListOfLines, Waiting
from proofbook.generator.pages.elements.figures import DrawnFigure
from proofbook.generator.pages.page import Gathered
from proofbook.generator.pages.sheets import Sheet
from proofbook.generator.pages.term_links import TermLinks
from proofbook.generator.pages.views import claims
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import plain

LessonT = TypeVar("LessonT", bound=LessonFile)


@dataclass
class Draft:
    """One page while it is composed; each method makes elements of what it is given."""

    sheet: Sheet
    folio: Folio
    links: TermLinks
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
    ) -> Heading:  # fmt: skip
        """A heading with the anchor of its words, or the one that is given."""
        html = escape(words)
        own = slugify(f"{number or ''} {html.striptags()}".strip(), "-")
        self._above = level
        place = anchor or unique(own, self._taken)
        return Heading(level, html, place, number, css, is_listed, not anchor)

    def lede(self, text: str) -> Block:
        """The sentences with which a page begins."""
        return Block([self.prose(text)], "pb-lede")

    def opening(self, words: str | Markup) -> Block:
        """The paragraph with which a page begins that lists others."""
        return Block([Markup("<p>{}</p>").format(words)], "pb-lede")

    def passage(
        self, title: str, text: str, number: int | None = None, level: int = 2
    ) -> Iterator[Element]:
        """A heading, numbered if a number is given, and a text below it."""
        yield self.heading(level, title, number)
        yield Block([self.prose(text)])

    def lines(self, texts: Iterable[str], tag: str = "ul") -> ListOfLines:
        """Lines as a list."""
        return ListOfLines([self.line(text) for text in texts], tag)

    def insight(self, text: str) -> Block:
        """The sentence to keep."""
        return Block([self.prose(text)], "pb-insight")

    def end(self, checks: Sequence[str], takeaway: str) -> Iterator[Element]:
        """The questions at the end of a lesson, and what to keep of it."""
        yield from self.checks(checks)
        yield self.heading(2, "Takeaway")
        yield self.insight(takeaway)

    def kept(self, lesson: LessonFile) -> Element | Markup:
        """What to keep of a lesson: its takeaways, or else its introduction."""
        if takeaways := getattr(lesson, "takeaways", None):
            return self.lines(takeaways)
        return self.prose(getattr(lesson, "takeaway", lesson.introduction))

    # --- figures, programs, questions, claims

    def drawn(self, figure: Figure) -> DrawnFigure:
        """A figure, operated if it is a play."""
        return figure_elements.figure(figures.draw(figure, self.folio))

    def first_state(self, figure: Figure) -> DrawnFigure:
        """A figure that nobody operates, without the numbers behind it."""
        first = figures.draw(play_states.first_alone(figure, self.folio), self.folio)
        return figure_elements.drawn_once(first, with_numbers=False)

    def figure(self, name: str | None) -> list[Element]:
        """The lesson's figure of an id, if there is one."""
        return [self.drawn(self.topic.figures[f"{self.sheet.mode}#{name}"])] if name else []

    def figure_to_try(self, name: str | None) -> str:
        """Words that name a figure that readers operate, for what waits; nothing for others."""
        named = self.topic.figures.get(f"{self.sheet.mode}#{name}")
        if named is None or not named.play:
            return ""
        return f", a figure to try: “{self.folio.line(named.title)}”"

    def program(self, written: Listing) -> programs.ListedProgram:
        """A listing with what its run printed."""
        return programs.listing(written, self.folio)

    def notes(self, program: ExplainedProgram) -> programs.Notes:
        """What the lines of a program do."""
        return programs.notes(program, self.folio, self.links.linked)

    def explained(self, program: ExplainedProgram) -> list[Element | Markup]:
        """What a program printed; the program closed, because the text has said how it works."""
        listed = self.program(program)
        whole = programs.WholeProgram(listed, self.notes(program))
        return [listed.output, self.prose(program.output_says), whole]

    def item(self, name: str | None, asked_as: str) -> list[Element]:
        """The topic's question of an id, if there is one; its heading is of level 2 or 3."""
        level = min(self._above + 1, 3)
        named = [self.topic.items[name]] if name else []
        return [questions.question(quiz_item, self.folio, asked_as, level) for quiz_item in named]

    def waiting(
        self, item: str | None, what: str, content: Iterable[Element | Markup]
    ) -> Waiting | Block:
        """Content that waits for the answer to a question, if one is named."""
        inside = list(content)
        return Waiting(item, plain(what), inside) if item else Block(inside)

    def checks(self, names: Sequence[str], title: str = "Check yourself") -> Iterator[Element]:
        """The questions at the end of a lesson, below a heading, if there are any."""
        if names:
            yield self.heading(2, title)
        for name in names:
            yield from self.item(name, "question")

    def verdicts(self, names: Sequence[str]) -> Iterator[Element]:
        """A table of claims with their verdicts, if there are any."""
        return claims.verdict_table(claims.verdict_rows(names, self.folio))

    def backing(self, names: Sequence[str], sources: Sequence[str] = ()) -> Iterator[Element]:
        """Claims with their verdicts and references, folded; a contrary verdict stands above."""
        if names or sources:
            yield from claims.backing(names, sources, self.folio)

    # --- sections

    def sections(
        self, written: Iterable[Section | None], level: int, title: str = "",
        after: str | None = None,
    ) -> Iterator[Element]:  # fmt: skip
        """Those sections that there are, below a heading of their own if a title is given.

        With `after`, their texts wait for the answer to that question.
        """
        for number, section in enumerate(filter(None, written)):
            if title and not number:
                yield self.heading(2, title)
            yield self.heading(level, self.folio.line(section.title))
            what = f"“{self.folio.line(section.title)}”{self.figure_to_try(section.figure)}"
            yield self.waiting(after, what, self.section_body(section))

    def section_body(self, section: Backed) -> Iterator[Element]:
        """What a section of any kind holds; where it asks, the rest waits for the answer."""
        opening, commit, table, program = (
            getattr(section, key, None) for key in ("opening", "commit", "table", "program")
        )
        if opening:
            yield Block([self.line(opening)], tag="p")
        yield from self.item(commit, "before")
        figure = self.figure_to_try(section.figure) or ", a figure" * bool(section.figure)
        what = f"the explanation{figure}{', a table' * bool(table)}"
        what += ", a program with its output" * bool(program)
        told: list[Element | Markup] = [self.prose(section.text), *self.figure(section.figure)]
        if table:
            told += self.table(table, self.folio.line(table.first_column or "What"))
        if program:
            told += self.explained(program)
        told += self.backing(section.claims, section.sources)
        yield self.waiting(commit, what, told)

    def table(self, table: LessonTable, first: str) -> Iterator[Element | Markup]:
        """A table of values, and what to see in it."""
        yield tables.of_values(table, self.folio, first)
        yield from self.texts(table.afterword)
