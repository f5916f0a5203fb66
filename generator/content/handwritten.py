"""content/pages/**/*.md: pages that people write as Markdown, beside the lessons.

In: a file's text. It begins with a head of YAML between two lines of `---` (`title`,
`description`). Out: a document like any other, whose text MkDocs turns into HTML once
`prose.filled` has put the values of its expressions in. A fence `listing` holds the keys of a
lesson's listing, and shows a program that a run executed.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import yaml

from generator.content.documents import Document, validated
from generator.content.errors import ContentError, ContentErrors, found_in
from generator.content.exhibit import Listing
from generator.content.words import Line, Mark, Written
from generator.content.yaml_source import Place, YamlFile, parse

_HEAD = re.compile(r"\A---[ \t]*\n(?P<yaml>.*?)^---[ \t]*$\n?", re.DOTALL | re.MULTILINE)
_LISTING = re.compile(r"^```listing\n(?P<yaml>.*?)^```$", re.DOTALL | re.MULTILINE)


class HandWritten(Written):
    """content/pages/<name>.md, below whose head stands its text."""

    title: Line
    description: Line
    """what it is about, for search engines and previews."""
    text: Annotated[str, Mark("page")]
    """Markdown, as MkDocs reads it."""
    listings: list[Listing] = []
    """the programs that it shows, in their order."""


def read(name: str, text: str) -> Document[HandWritten]:
    """Read one page.

    Args:
        name: of the file, as messages name it.
        text: what it holds.

    Raises:
        ContentErrors: everything wrong with its head, or with its listings.
    """
    head = _HEAD.match(text)
    if head is None:
        message = "begin with title: and description: between two lines of ---"
        raise ContentErrors([ContentError(name, 1, 1, message)])

    def parsed(part: re.Match[str]) -> YamlFile:
        """YAML within the page, with the places that it has there."""
        before = re.sub(r"[^\n]", " ", text[: part.start("yaml")])
        return parse(name, before + part["yaml"])

    source, listings = parsed(head), list(map(parsed, _LISTING.finditer(text)))
    body, line = text[head.end() :], text.count("\n", 0, head.end())
    begins, ends = (yaml.Mark(name, at, line, 0, None, 0) for at in (head.end(), len(text)))
    node = yaml.ScalarNode("", body, begins, ends)
    places = {**source.places, ("text",): Place(node, node)}
    for number, one in enumerate(listings):
        places |= {("listings", number, *path): place for path, place in one.places.items()}
    written = source.document if isinstance(source.document, dict) else {}
    written = {**written, "text": body, "listings": [one.document for one in listings]}
    return validated(YamlFile(name, text, written, places), HandWritten)


def split(text: str, listings: Sequence[Listing]) -> Iterator[str | Listing]:
    """A text in parts: Markdown, and the listings that stand between."""
    parts = re.split(_LISTING, text)
    for markdown, listing in zip_longest(parts[::2], listings):
        yield markdown
        if listing:
            yield listing


def files(folder: Path) -> Iterator[Path]:
    """Every file of content/pages but those that begin with a dot, or stand in such a folder."""
    return filter(Path.is_file, found_in(folder, "**/*"))
