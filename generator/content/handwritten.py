"""content/pages/**/*.md: pages that people write as Markdown, beside the lessons.

In: a file's text. It may begin with a head of YAML between two lines of `---` (`title`,
`description`); the first `#` heading is the title where the head has none. Out: a `HandWritten`,
whose text MkDocs turns into HTML once `filled` has put the values of its expressions in. The rules
of every author's text hold here too: numbers are `{{ expressions }}`, and code is left as it is. A
fence `listing` holds the keys of a lesson's listing, and shows a program that a run executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from generator.content import content_files, documents, prose
from generator.content.documents import Document
from generator.content.errors import ContentError, ContentErrors, place_of
from generator.content.exhibit import Listing
from generator.content.prose import Expressed
from generator.content.words import Line, Written

_HEAD = re.compile(r"\A---[ \t]*\n(?P<yaml>.*?)^---[ \t]*$\n?", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"\A\s*^#[ \t]+(?P<title>\S.*?)[ \t]*#*[ \t]*$\n?", re.MULTILINE)
_LISTING = re.compile(r"^```listing\n(?P<yaml>.*?)^```$", re.DOTALL | re.MULTILINE)


class Head(Written):
    """What stands between the two lines of `---`."""

    title: Line | None = None
    description: Line | None = None


@dataclass(frozen=True)
class HandWritten:
    """One page.

    Attributes:
        path: under the site's root, as under content/pages.
        file: as messages name it.
        title: the page's.
        description: what it is about, for search engines and previews; may be empty.
        text: the file's, whole.
        head: where the head ends in it.
        begins: where the page's own text begins in it, after head and title.
        listings: the programs that it shows, in their order.
    """

    path: str
    file: str
    title: str
    description: str
    text: str
    head: int
    begins: int
    listings: tuple[Document[Listing], ...] = ()

    @property
    def body(self) -> str:
        """The Markdown below the title."""
        return self.text[self.begins :]

    def faults(self) -> Iterator[ContentError]:
        """What its text may not hold, whatever the traces say."""
        for fault in prose.faults(self.text[self.head :], is_page=True):
            yield self.error(self.head + fault.offset, fault.message)

    def expressions(self) -> Iterator[Expressed]:
        """The expressions that a page prints, with their places in the file."""
        return (one for one in expressions(self.text) if one.start > self.head)

    def error(self, offset: int, message: str) -> ContentError:
        """An error at a character of the file."""
        return ContentError(self.file, *place_of(self.text, offset), message)


def expressions(text: str) -> Iterator[Expressed]:
    """The expressions of a text, without those in code, which stays as it is written."""
    code = [found.span() for found in prose.code(text)]
    for one in prose.expressions(text):
        if not any(begin <= one.begin < end for begin, end in code):
            yield one


def split(text: str, listings: Sequence[Listing]) -> Iterator[str | Listing]:
    """A text in parts: Markdown, and the listings that stand between."""
    parts = re.split(_LISTING, text)
    for markdown, listing in zip_longest(parts[::2], listings):
        yield markdown
        if listing:
            yield listing


def filled(text: str, fill: Callable[[str], str]) -> str:
    """Markdown with what its expressions print in their places."""
    done, parts = 0, []
    for one in expressions(text):
        parts += [text[done : one.begin], fill(one.text)]
        done = one.end
    return "".join([*parts, text[done:]])


def read(folder: Path, path: Path, name: str) -> HandWritten:
    """Read one page.

    Args:
        folder: content/pages.
        path: the file.
        name: as messages name it.

    Raises:
        ContentErrors: it cannot be read, or its head has mistakes.
    """
    text = content_files.text_of(path, name)
    found = _HEAD.match(text)
    written, head = Head(), found.end() if found else 0
    if found:
        document = documents.read(name, f"---\n{found['yaml']}", Head)
        faults = list(document.text_faults())
        if faults:
            raise ContentErrors(faults)
        written = document.model
    heading = _HEADING.match(text[head:])
    by_name = re.sub(r"[-_]+", " ", path.stem).capitalize()
    title = written.title or (heading["title"] if heading else by_name)
    begins = head + (heading.end() if heading else 0)
    inside = path.relative_to(folder).as_posix()
    listings = tuple(
        documents.read(name, "\n" * text.count("\n", 0, one.start("yaml")) + one["yaml"], Listing)
        for one in _LISTING.finditer(text)
    )
    return HandWritten(inside, name, title, written.description or "", text, head, begins, listings)


def files(folder: Path) -> Iterator[Path]:
    """Every file of content/pages but those that begin with a dot, or stand in such a folder."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if path.is_file() and not any(part.startswith(".") for part in inside):
            yield path
