"""Book → what its pages are, before any of them is printed. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from proofbook.generator.content.book import Book, Topic
from proofbook.generator.content.handwritten import HandWritten
from proofbook.generator.content.lesson import Mode
from proofbook.generator.values.machines import Missing
from proofbook.runners.system.kinds import kinds

HOME = "content/site.yml"
EVIDENCE = "evidence.md"


@dataclass(frozen=True)
class Sheet:
    """What one page is, before it is printed."""

    path: str  # under the site's root
    kind: str  # which function composes it (`Kind.pages`)
    heading: str  # its title, an author's line; of what runs measured, plain text
    about: str  # for search engines and previews
    source: str | None = None  # the file that an author edits
    topic: Topic | None = None
    mode: Mode | None = None  # of a lesson
    is_part: bool = False  # of a lesson that has several pages
    text: str = ""  # the Markdown of a page by hand
    by_hand: HandWritten | None = None  # such a page, with the listings and quizzes of its fences
    of: str = ""  # the name of what a page of another kind shows
    is_recorded: bool = False  # its title is text of traces, and not an author's
    about_is_recorded: bool = False  # so is what it is about
    kept: str = ""  # a name in its title, in which no line ends
    has_toc: bool = False
    under: str | None = None  # its page in the header, where that is not its folder's index
    missing: Missing | None = None  # here, where it shows the reference machine


def sheets(book: Book) -> Iterator[Sheet]:
    """Yield the `Sheet` of every page of a book."""
    for kind in kinds():
        if kind.sheets:
            yield from kind.take(kind.sheets)(book)
    for document in book.handwritten:
        file, page = document.source.file, document.model
        yield Sheet(
            file.partition("/pages/")[2], "handwritten", page.title, page.description, file,
            text=page.text or "\n", has_toc=True, by_hand=page,
        )  # fmt: skip
