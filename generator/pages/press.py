"""Book → its pages: all of them or, while an author edits, those of the files that changed.

Flow: a book's mistakes are looked for, then its pages are printed in two turns: those that tell of
no other page, and those that tell of lessons. A press keeps what it printed. Of the next book it
prints the pages that it is told to; the others stay as they were, and so do their checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from generator.checks import content_checks, guide_checks
from generator.content.book import Book
from generator.content.documents import Document
from generator.content.errors import ContentError, ContentErrors
from generator.content.guide import GuideFile
from generator.content.topic import MODES
from generator.evidence import verdicts
from generator.evidence.claim_topics import lessons_by_claim
from generator.evidence.evaluation import Evidence
from generator.evidence.folio import interface_words
from generator.evidence.other_machines import other_outcomes
from generator.evidence.which_machine import shows_reference
from generator.pages import headings
from generator.pages.page import Gathered, Judged, Printed, Sheet, environment, printed
from generator.pages.sheets import EVIDENCE, HOME, sheets
from generator.pages.views.glossary import Use

TAKEN = "the book has a page of this name already; choose another"
EVERYTHING = ("",)


def pages_of(files: Iterable[str]) -> tuple[str, ...]:
    """How the paths of the pages begin that an author sees change with some files of content/.

    That is the page of a lesson, the pages of a topic, or every page. Pages that only count or list
    what changed are among them with the next file that changes everything.
    """
    found = set()
    for file in files:
        folder, _, name = file.rpartition("/")
        stem, _, suffix = name.rpartition(".")
        if folder == "pages" and suffix == "md":
            found.add(name)
        elif folder.startswith("topics/") and suffix == "yml":
            found.add(f"{folder}/{stem}.md" if stem in MODES else f"{folder}/")
        else:
            return EVERYTHING
    return tuple(sorted(found))


class Press:
    """Prints one book after another.

    Attributes:
        judged: the evidence of the last book, and its verdicts.
        sheets: what each page is, by path.
        pages: the pages.
    """

    judged: Judged

    def __init__(self) -> None:
        """Begin."""
        self.sheets: dict[str, Sheet] = {}
        self.pages: dict[str, Printed] = {}

    def printed(self, book: Book, under: tuple[str, ...] = EVERYTHING) -> dict[str, bytes]:
        """Every page of a book, by its path under the site's root.

        Args:
            book: what pages are made from.
            under: how the paths begin of the pages that are printed; see `pages_of`.

        Raises:
            ContentErrors: whatever authors wrote that cannot be printed, all at once.
        """
        if self.pages and under != EVERYTHING:
            self.judged = replace(self.judged, evidence=self.judged.evidence.over(book))
            pages = dict(self.pages)
        else:
            self.judged, under, pages = judged(book), EVERYTHING, {}
        planned = {one.path: one for one in _on_machines(sheets(book), self.judged.evidence)}
        _raise_any(_mistakes(self.judged.evidence, under), self.judged.evidence)
        self._print(
            [one for path, one in planned.items() if path.startswith(under) or path not in pages],
            pages,
        )
        pages = {path: pages[path] for path in planned}
        _raise_any([
            *_doubles(sheets(book)), *_missing_sections(book, _anchors(book, pages)),
        ])  # fmt: skip
        self.sheets, self.pages = planned, pages
        return {path: page.content for path, page in pages.items()}

    @property
    def assets(self) -> dict[str, bytes]:
        """The files that single pages load, by path, such as the states of a figure."""
        return {path: one for page in self.pages.values() for path, one in page.assets.items()}

    def _print(self, chosen: Iterable[Sheet], pages: dict[str, Printed]) -> None:
        """Print these pages, turn by turn, and add them to those that are printed.

        Raises:
            ContentErrors: what a page cannot be printed for, of all pages of a turn.
        """
        gathered = _of_claims(self.judged)
        for turn in range(2):
            if turn:
                _gather(self.judged.evidence.book, pages, gathered)
            _raise_any(
                error
                for sheet in chosen
                if sheet.turn == turn
                for error in _add(sheet, self.judged, gathered, pages)
            )


def _add(
    sheet: Sheet, judged: Judged, gathered: Gathered, pages: dict[str, Printed]
) -> list[ContentError]:
    """Add a page to those that are printed; the mistakes for which there is none."""
    try:
        pages[sheet.path] = printed(sheet, judged, gathered)
    except ContentErrors as found:
        return found.errors
    return []


def _on_machines(planned: Iterable[Sheet], evidence: Evidence) -> Iterator[Sheet]:
    """The sheets, with the reference machine shown where their text needs it: of a topic, for all.

    The page of all claims names the machine beside each of them, and decides nothing.
    """
    known: dict[str, bool] = {}
    for sheet in planned:
        of = f"content/topics/{sheet.topic.id}/" if sheet.topic else sheet.source
        if not of or sheet.path == EVIDENCE:
            yield sheet
            continue
        if of not in known:
            known[of] = shows_reference(_files(of, evidence.book), sheet.text, evidence)
        yield replace(sheet, on_reference=known[of])


def _files(of: str, book: Book) -> Iterator[Document[Any]]:
    """What decides: a topic's files, or a file and those set apart from it; of home, both."""
    starts = (of, "content/topics/") if of == HOME else of.removesuffix(".yml")
    return (one for one in book.documents if one.source.file.startswith(starts))


def judged(book: Book) -> Judged:
    """The evidence of a book, with every verdict."""
    environment().globals["ui"] = interface_words()
    evidence = Evidence(book)
    outcomes = verdicts.judge(book, evidence)
    return Judged(evidence, outcomes, other_outcomes(book, outcomes))


def checked(book: Book) -> Judged:
    """The evidence of a book without mistakes; pages that the guide names are printed for it.

    Raises:
        ContentErrors: whatever authors wrote that cannot be printed, all at once.
    """
    found = judged(book)
    named = {edge.lesson.page for _, edge in book.guide.edges} if book.guide else set()
    paths = {f"topics/{name}.md" for name in named}
    errors, pages = content_checks.check(found.evidence), dict[str, Printed]()
    gathered = _of_claims(found)
    _raise_any([*errors, *_doubles(sheets(book))], found.evidence)
    for sheet in (one for one in sheets(book) if one.path in paths):
        errors += _add(sheet, found, gathered, pages)
    _raise_any([*errors, *_missing_sections(book, _anchors(book, pages))])
    return found


def _mistakes(evidence: Evidence, under: tuple[str, ...]) -> Iterator[ContentError]:
    """What is wrong in the files of some pages."""
    for document in evidence.book.documents:
        name = document.source.file.removeprefix("content/").replace(".yml", ".md")
        if name.startswith(under):
            yield from content_checks.of_document(evidence, document)
    for page in evidence.book.handwritten:
        if page.path.startswith(under):
            yield from content_checks.of_handwritten(evidence, page)


def _raise_any(errors: Iterable[ContentError], evidence: Evidence | None = None) -> None:
    """Raise the mistakes, if any; with the evidence, also the broken laws that cause some."""
    found = list(errors)
    if found:
        broken = verdicts.broken_laws(evidence.book, evidence) if evidence else []
        raise ContentErrors([*broken, *found])


def _doubles(planned: Iterable[Sheet]) -> Iterator[ContentError]:
    """Pages for which another one stands already."""
    taken = set()
    for sheet in planned:
        if sheet.path in taken:
            yield ContentError(sheet.source or sheet.path, 0, 0, TAKEN)
        taken.add(sheet.path)


def _missing_sections(
    book: Book, anchors: Mapping[str, Mapping[str, str]]
) -> Iterator[ContentError]:
    """Sections that the guide names and their lessons lack."""
    for document in book.documents:
        if isinstance(document.model, GuideFile):
            yield from guide_checks.headings(document, anchors)


def _anchors(book: Book, pages: Mapping[str, Printed]) -> dict[str, dict[str, str]]:
    """The headings of the lessons that the guide names, as far as they are printed."""
    named = {edge.lesson.page for _, edge in book.guide.edges} if book.guide else set()
    return {
        name: headings.anchors(pages[path].content)
        for name in sorted(named)
        if (path := f"topics/{name}.md") in pages
    }


def _of_claims(judged: Judged) -> Gathered:
    """What pages tell of claims: no page needs to be printed for it."""
    groups: dict[str, list[str]] = {}
    for name, outcome in judged.outcomes.items():
        groups.setdefault(outcome.experiment, []).append(name)
    lessons = lessons_by_claim(judged.evidence.book)
    return Gathered(claim_groups=dict(sorted(groups.items())), claim_lessons=lessons)


def _gather(book: Book, pages: Mapping[str, Printed], gathered: Gathered) -> None:
    """Read off the pages what later ones tell of them."""
    terms = {term.id: term for term in book.terms}
    gathered.used_in.clear()
    for path, page in pages.items():
        gathered.minutes[path] = page.minutes
        for term in page.terms:
            use = Use.of(path, page.content, terms[term])
            gathered.used_in[term] = (*gathered.used_in.get(term, ()), use)
    gathered.anchors = _anchors(book, pages)
