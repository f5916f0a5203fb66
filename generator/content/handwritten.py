"""content/pages/**/*.md: pages that people write as Markdown, and fences of YAML in such pages.

In: a file's text. It begins with a head of YAML between two lines of `---` (`title`,
`description`). Out: a document like any other, whose text MkDocs turns into HTML once
`prose.filled` has put the values of its expressions in. A fence `listing` holds the keys of a
lesson's listing, and shows a program that a run executed; kinds and companions add fences of their
own, such as `quiz`, which asks. Mistakes in a fence have the line and column of the page.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import create_model

from proofbook.generator.content.documents import Document, validated
from proofbook.generator.content.errors import ContentError, ContentErrors, visible_files
from proofbook.generator.content.exhibit import Listing
from proofbook.generator.content.prose import OWN_FENCE
from proofbook.generator.content.words import FieldMark, Line, Written
from proofbook.generator.content.yaml_source import YamlFile, YamlPlace, parse
from proofbook.runners.system.kinds import kinds

_HEAD = re.compile(r"\A---[ \t]*\n(?P<yaml>.*?)^---[ \t]*$\n?", re.DOTALL | re.MULTILINE)


KEYS = {"listing": "listings"}  # of fences of the book, by their word


class HandWritten(Written):
    """content/pages/<name>.md, below whose head stands its text."""

    title: Line
    description: Line
    """what it is about, for search engines and previews."""
    needs: Line | None = None
    """the fence that it is about; where no folder adds one of this name, the page is left out."""
    text: Annotated[str, FieldMark("page")]
    """Markdown, as MkDocs reads it."""
    listings: list[Listing] = []
    """the programs that it shows, in their order."""

    def of_kinds(self) -> dict[str, list[Written]]:
        """What the fences of kinds and companions hold, by their word."""
        return {word: getattr(self, word) for word in _fences_of_kinds()}


@cache
def _fences_of_kinds() -> dict[str, type[Written]]:
    """The models of fences that kinds and companions add, by their word."""
    return {word: kind.take(f.model) for kind in kinds() for word, f in kind.fences.items()}


def is_left_out(model: Written) -> bool:
    """Whether a page is about a fence that nothing adds, such as that of a companion taken away."""
    needs = model.needs if isinstance(model, HandWritten) else None
    return needs is not None and needs not in _fences_of_kinds()


@cache
def page_model() -> type[HandWritten]:
    """`HandWritten` with a field for each fence of a kind or a companion, called by its word."""
    fields: Any = {word: (list[model], []) for word, model in _fences_of_kinds().items()}  # type: ignore[valid-type]
    return create_model("HandWritten", __base__=HandWritten, **fields)


@cache
def _parsers() -> dict[str, Callable[[str, str, int, int], YamlFile]]:
    """How fences of kinds and companions are parsed that are no plain YAML, by their word."""
    own = ((kind, word, f.parse) for kind in kinds() for word, f in kind.fences.items())
    return {word: kind.take(parse) for kind, word, parse in own if parse}


def _keys() -> dict[str, str]:
    """The field of the page that holds a fence, by the fence's word."""
    return KEYS | {word: word for word in _fences_of_kinds()}


def read(name: str, text: str) -> Document[HandWritten]:
    """A `Document` of a page's whole text: head, Markdown, parsed fences; or ContentErrors."""
    head = _HEAD.match(text)
    if head is None:
        message = "begin with title: and description: between two lines of ---"
        raise ContentErrors([ContentError(name, 1, 1, message)])

    source = within(name, text, *head.span("yaml"))
    keys = _keys()
    fenced: dict[str, list[YamlFile]] = {word: [] for word in keys}
    for fence in OWN_FENCE.finditer(text):
        span = name, text, *fence.span("yaml")
        fenced[fence[1]].append(_parsers().get(fence[1], within)(*span))
    body, line = text[head.end() :], text.count("\n", 0, head.end())
    begins, ends = (yaml.Mark(name, at, line, 0, None, 0) for at in (head.end(), len(text)))
    node = yaml.ScalarNode("", body, begins, ends)
    places = {**source.places, ("text",): YamlPlace(node, node)}
    written = source.document if isinstance(source.document, dict) else {}
    written = {**written, "text": body}
    for word, parts in fenced.items():
        written[keys[word]] = [part.document for part in parts]
        for number, part in enumerate(parts):
            places |= {(keys[word], number, *path): place for path, place in part.places.items()}
    return validated(YamlFile(name, text, written, places), page_model())


class Fenced(NamedTuple):
    """A fence of a page."""

    word: str  # behind its marks
    holds: Written


def split(page: HandWritten) -> Iterator[str | Fenced]:
    """Yield a page's Markdown in pieces and, between them, each fence as its parsed model."""
    parts = re.split(OWN_FENCE, page.text)
    holds = {word: iter(getattr(page, key)) for word, key in _keys().items()}
    for markdown, word in zip_longest(parts[::3], parts[1::3]):
        yield markdown
        if word:
            yield Fenced(word, next(holds[word]))


def files(folder: Path) -> Iterator[Path]:
    """Every file of content/pages but those that begin with a dot, or stand in such a folder."""
    return filter(Path.is_file, visible_files(folder, "**/*"))


FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*?)[ \t]*\n"
    r"(?P<yaml>.*?)(?:^[ \t]*(?P=mark)[`~]*[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)


def within(name: str, text: str, start: int, end: int) -> YamlFile:
    """Parse text[start:end] as YAML; places are those in the whole text."""
    return parse(name, re.sub(r"[^\n]", " ", text[:start]) + text[start:end])
