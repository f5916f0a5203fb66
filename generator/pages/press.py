"""Book → its pages: all of them or, while an author edits, those of the files that changed.

Flow: a book's mistakes are looked for, then its pages are printed, on every core, lessons before
those that tell of lessons. A press keeps what it printed. Of the next book it prints the pages that
it is told to; the others stay as they were, and so do their checks.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from multiprocessing import active_children, get_context
from threading import active_count

from proofbook.generator.checks import content_checks
from proofbook.generator.content.book import Book
from proofbook.generator.content.errors import ContentError, ContentErrors
from proofbook.generator.content.lesson import CHAINED, MODES
from proofbook.generator.pages.compose import printed
from proofbook.generator.pages.environment import environment
from proofbook.generator.pages.page import Gathered, Page
from proofbook.generator.pages.sheets import EVIDENCE, HOME, Sheet, sheets
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.machines import Missing, OtherOutcomes, missing_runs, other_outcomes
from proofbook.runners.core.system.processes import end_with
from proofbook.runners.core.trace.machine import num_cores
from proofbook.runners.system.kinds import kinds, page_kind

TAKEN = "the book has a page of this name already"
EVERYTHING = ("",)
FEWEST = 10  # pages that are worth a process
# Files whose words stand on many pages, and how the paths of their own pages begin.
SHARED: dict[str, Sequence[str]] = {
    "content/misconceptions.yml": (),
}
SHARED |= {file: own for kind in kinds() for file, own in kind.shared.items()}
# Their keys that are more than words on a page: others read by them.
READ_BY = frozenset({"id", "term", "also", "refuted_by", "value", "unit"})
_PageOrMistakes = Page | list[ContentError]
_Make = Callable[[int], _PageOrMistakes]
_Texts = Counter[tuple[str, str]]  # of a file, each with its key


class Press:
    """Prints one book after another, and keeps its sheets and pages by path."""

    evidence: Evidence
    others: dict[str, OtherOutcomes]

    def __init__(self, tell: Callable[[int, int], None] = lambda done, of: None) -> None:
        """Begin; `tell` is called with the number of pages printed, and of those to print."""
        self.tell = tell
        self.sheets: dict[str, Sheet] = {}
        self.pages: dict[str, Page] = {}
        self.shared: dict[str, _Texts] = {}

    def pages_of(self, files: Iterable[str], book: Book) -> tuple[str, ...]:
        """Prefixes of the pages' paths to print after an edit of `files`; in doubt `EVERYTHING`.

        These are the page of a lesson, the pages of a topic, those that show a changed word, or all
        pages. Pages that only count or list what changed are printed with the next such edit.
        """
        prefixes, shared = set(), _shared_texts(book)
        for file in files:
            folder, _, name = file.removeprefix("content/").rpartition("/")
            stem, _, suffix = name.rpartition(".")
            if folder == "pages" and suffix == "md":
                prefixes.add(name)
            elif folder.startswith("topics/") and suffix == "yml":
                prefixes.add(f"{folder}/{stem}.md" if stem in MODES else f"{folder}/")
                if stem.startswith("quiz"):
                    asking = book.handwritten_by_name.items()
                    prefixes.update(
                        f"{path}.md" for path, page in asking if any(page.of_kinds().values())
                    )
                if stem in CHAINED:
                    prefixes.add(f"{folder}/{stem}-")
            elif folder == "tries":
                prefixes.update(_of_try(name, book))
            elif file in self.shared and file in shared:
                prefixes.update(self._pages_showing(file, self.shared[file], shared[file]))
            else:
                return EVERYTHING
        return EVERYTHING if "" in prefixes else tuple(sorted(prefixes))

    def _pages_showing(self, file: str, before: _Texts, after: _Texts) -> Iterator[str]:
        """A file of `SHARED`, its pages, and those that show a text of it that changed."""
        gone = before - after
        if READ_BY.intersection(key for key, _ in (*gone, *(after - before))):
            yield from EVERYTHING
        yield from (file.removeprefix("content/").replace(".yml", ".md"), *SHARED[file])
        texts = {text for _, text in gone}
        yield from (path for path, page in self.pages.items() if texts & page.texts)

    def printed(self, book: Book, under: tuple[str, ...] = EVERYTHING) -> dict[str, bytes]:
        """Pages' bytes by path; a kept page is printed anew only if its path begins with `under`.

        Raises:
            ContentErrors: whatever authors wrote that cannot be printed, all at once.
        """
        kept = self.pages
        if kept and under != EVERYTHING:
            self.evidence = self.evidence.over(book)
        else:
            self.evidence, under, kept = Evidence(book), EVERYTHING, {}
            self.others = other_outcomes(book, self.evidence.judged_claims)
        content_checks.raise_any(_mistakes(self.evidence, under), self.evidence)
        pages: dict[str, Page] = {}
        gathered = Gathered(self.evidence, self.others, pages)
        planned = list(_on_machines(sheets(book), self.evidence))
        errors = list(_path_conflicts(planned))
        for is_listed in (True, False):  # lessons and pages by hand first, because others list them
            group = [sheet for sheet in planned if _is_listed(sheet) is is_listed]
            to_print = [s for s in group if s.path not in kept or s.path.startswith(under)]
            new = dict[str, _PageOrMistakes]()
            for sheet, page in zip(to_print, _print_all(to_print, gathered), strict=True):
                new[sheet.path] = page
                self.tell(len(pages) + len(new), len(planned))
            for sheet in group:
                match new.get(sheet.path) or kept[sheet.path]:
                    case Page() as page:
                        pages[sheet.path] = page
                    case mistakes:
                        errors += mistakes
        for kind in kinds():
            if kind.mistakes_after:
                errors += kind.take(kind.mistakes_after)(book, gathered.sections)
        content_checks.raise_any(errors)
        self.sheets, self.pages = {sheet.path: sheet for sheet in planned}, pages
        self.shared = _shared_texts(book)
        return {path: page.content for path, page in pages.items()}

    @property
    def assets(self) -> dict[str, bytes]:
        """The files that single pages load, by path, such as the states of a figure."""
        return {path: file for page in self.pages.values() for path, file in page.assets.items()}


def _of_try(name: str, book: Book) -> Iterator[str]:
    """The pages of a try, or of what a companion wrote there."""
    of_companions = [to for kind in kinds() for end, to in kind.tries.items() if name.endswith(end)]
    yield from of_companions
    if not of_companions:
        yield f"evidence/{name.partition('.')[0]}.md"
        yield from (f"topics/{topic.id}/try.md" for topic in book.topics)


def _is_listed(sheet: Sheet) -> bool:
    """Whether others list it; but a page that lists sections of lessons itself comes after them."""
    late = {word for kind in kinds() for word, f in kind.fences.items() if f.follows_lessons}
    held = sheet.by_hand.of_kinds() if sheet.by_hand else {}
    is_plain = sheet.by_hand and not any(held[word] for word in late)
    of_kind = page_kind(sheet.kind)
    return bool(sheet.mode or is_plain or (of_kind and of_kind[1].is_listed))


def _path_conflicts(planned: Sequence[Sheet]) -> Iterator[ContentError]:
    """Sheets whose path another one has."""
    paths: dict[str, Sheet] = {}
    for sheet in planned:
        first = paths.setdefault(sheet.path, sheet)
        if first is not sheet:
            of = f", of {first.source}" if first.source else ""
            yield ContentError(sheet.source or sheet.path, 0, 0, f"{TAKEN}{of}; choose another")


def _print_all(planned: Sequence[Sheet], gathered: Gathered) -> Iterator[_PageOrMistakes]:
    """The page of each sheet, or its mistakes. Processes share the work where they may be forked.

    That is on Linux, before a thread runs (MkDocs serves with some): a fork copies no other thread,
    and what one held stays locked.
    """
    make = partial(_page_or_mistakes, planned, gathered)
    places, done = range(len(planned)), 0
    num_processes = min(num_cores(), len(planned) // FEWEST)
    may_fork = sys.platform == "linux" and active_count() == 1
    if may_fork and num_processes > 1:
        begin = partial(_start_worker, os.getpid(), make)
        for template in environment().list_templates(extensions=["j2"]):
            environment().get_template(template)  # compiled once, for all processes
        try:
            with ProcessPoolExecutor(num_processes, get_context("fork"), begin) as pool:
                for page in pool.map(_print_inherited, places):
                    done += 1
                    yield page
        except (OSError, RuntimeError):  # none can be forked, or somebody ended one
            for process in active_children():
                process.kill()
    yield from map(make, places[done:])


def _page_or_mistakes(planned: Sequence[Sheet], gathered: Gathered, place: int) -> _PageOrMistakes:
    try:
        return printed(planned[place], gathered)
    except ContentErrors as found:
        return list(found.errors)


_inherited: list[_Make] = []  # of a forked process


def _start_worker(parent: int, make: _Make) -> None:
    """Keep what the fork brought, a whole book. Ctrl-C is for the parent, and its end ends this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(parent)
    _inherited.append(make)


def _print_inherited(place: int) -> _PageOrMistakes:
    return _inherited[0](place)


def _on_machines(planned: Iterable[Sheet], evidence: Evidence) -> Iterator[Sheet]:
    """The sheets, each with the runs for which it shows the reference machine, if it does.

    All pages of a topic show one machine. The page of all claims names a machine beside each claim.
    """

    @cache
    def missing(of: str) -> Missing | None:
        """Of a topic, one file and those named after it; home's are its own and all topics'."""
        starts = (of, "content/topics/") if of == HOME else of.removesuffix(".yml")
        files = (file for file in evidence.book.documents if file.source.file.startswith(starts))
        return missing_runs(files, evidence)

    for sheet in planned:
        of = f"content/topics/{sheet.topic.id}/" if sheet.topic else sheet.source
        is_decided = of is not None and sheet.path != EVIDENCE
        yield replace(sheet, missing=missing(of) if is_decided else None)


def _shared_texts(book: Book) -> dict[str, _Texts]:
    """What the files of `SHARED` hold."""
    documents = {document.source.file: document.source.document for document in book.documents}
    return {file: Counter(_texts(documents[file])) for file in SHARED if file in documents}


def _texts(written: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a document, with its key, and every number as a value."""
    if isinstance(written, dict | list):
        pairs = written.items() if isinstance(written, dict) else ((key, part) for part in written)
        for name, part in pairs:
            yield from _texts(part, name)
    else:
        yield key if isinstance(written, str) else "value", str(written)


def _mistakes(evidence: Evidence, under: tuple[str, ...]) -> Iterator[ContentError]:
    for document in evidence.book.documents:
        file = document.source.file.removeprefix("content/").removeprefix("pages/")
        if file.replace(".yml", ".md").startswith(under):
            yield from content_checks.document_errors(evidence, document)
