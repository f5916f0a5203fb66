"""`python -m generator keys`: every key that authors write, as a page of Markdown.

In: a book. Out: a section for each part of its files, and in it a row for each key: what the
docstring of the part's model says of it, or the words that it takes, and as an example the
shortest value in the book.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from typing import Literal, get_args, get_origin

import yaml

from generator.content.book import Book
from generator.content.words import Written, described

_HEAD = "| key | required | is | example |\n|---|---|---|---|"


def page(book: Book) -> Iterator[str]:
    """The lines of the page."""
    parts: dict[type[Written], tuple[str, list[Written]]] = {}
    for document in book.documents:
        for part in _parts(document.model):
            parts.setdefault(type(part), (document.source.file, []))[1].append(part)
    yield "# Keys of the YAML files"
    for model, (file, found) in parts.items():
        about, _, _ = (inspect.getdoc(model) or "").partition("\n\n")
        yield f"\n## {model.__name__}\n\n{_line(about)} For example in `{file}`.\n\n{_HEAD}"
        told = described(model)
        for name, field in model.model_fields.items():
            key, words = field.alias or name, " · ".join(_words(field.annotation))
            says = told.get(key, field.description or words)
            given = (getattr(part, name) for part in found if name in part.model_fields_set)
            example = min((_example(key, value) for value in given), key=len, default="")
            needed = "yes" if field.is_required() else ""
            yield f"| `{key}` | {needed} | {_line(says)} | {example} |"


def _parts(thing: object) -> Iterator[Written]:
    """A part of a file and all parts within it."""
    if isinstance(thing, Written):
        yield thing
        thing = [value for _, value in thing]
    for one in thing if isinstance(thing, list) else ():
        yield from _parts(one)


def _words(annotation: object) -> Iterator[str]:
    """The words that a key takes, where it takes no others."""
    for one in get_args(annotation):
        if get_origin(annotation) is Literal:
            yield f"`{one}`"
        else:
            yield from _words(one)


def _example(key: str, value: object) -> str:
    """A key with a value, as an author writes it; of parts, what they are."""
    inner = value[0] if isinstance(value, list) and value else value
    if isinstance(inner, Written):
        return f"[{type(inner).__name__}](#{type(inner).__name__.lower()})"
    text = yaml.safe_dump({key: value}, default_flow_style=True, width=10_000, allow_unicode=True)
    return f"`{textwrap.shorten(_line(text)[1:-1], 100, placeholder=' …')}`"


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
