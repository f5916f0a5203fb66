"""`python -m generator keys`: every key that authors write, as a page of Markdown.

In: a book. Out: a section for each part of its files, and in it a row for each key: what the
docstring of the part's model says of it, or the words that it takes, and as an example the
shortest value in the book.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from generator.content.book import Book
from generator.content.words import Written, described

_OPENING = """\
# Keys of the YAML files

A part takes the keys of its table, and no others. The column *is* stays empty where the name and
the example say it, or the part to which the example leads. A text is Markdown with
`{{ expressions }}`, whose [functions](#functions) are at the end."""
_FLOW: dict[str, Any] = {"default_flow_style": True, "width": 10_000, "allow_unicode": True}
_HEAD = "| key | required | is | example |\n|---|---|---|---|"


def page(book: Book) -> Iterator[str]:
    """The lines of the page."""
    parts: dict[type[Written], tuple[str, list[Written]]] = {}
    for document in book.documents:
        for part in _parts(document.model):
            for model in _taken(reversed(type(part).__mro__)):
                parts.setdefault(model, (document.source.file, []))[1].append(part)
    yield _OPENING
    for model, (file, found) in parts.items():
        about, _, _ = (inspect.getdoc(model) or "").partition("\n\n")
        bases = " and ".join(map(_link, _taken(model.__bases__)))
        more = f" Takes the keys of {bases} as well." * bool(bases)
        where = f" For example in `{file}`." if file not in about else ""
        yield f"\n## {_name(model)}\n\n{line(about)}{more}{where}\n\n{_HEAD}"
        own = (name for name in model.__annotations__ if name in model.model_fields)
        yield from (_row(name, model, found) for name in own)


def _row(name: str, model: type[Written], parts: list[Written]) -> str:
    field = model.model_fields[name]
    key, words = field.alias or name, " · ".join(_words(field.annotation))
    says = described(model).get(key) or words or field.description or _of_type(field.annotation)
    given = [getattr(part, name) for part in parts if name in part.model_fields_set]
    example = _example(key, given) if given else ""
    return f"| `{key}` | {'yes' if field.is_required() else ''} | {line(says)} | {example} |"


def _taken(classes: Iterable[type]) -> list[type[Written]]:
    """Those classes whose keys a part takes."""
    return [one for one in classes if issubclass(one, Written) and one.model_fields]


def _name(model: type[Written]) -> str:
    return model.__name__.lstrip("_")


def _link(model: type[Written]) -> str:
    return f"[{_name(model)}](#{_name(model).lower()})"


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


def _of_type(annotation: object) -> str:
    """What the type of a key says of it, such as that of an id."""
    for one in reversed(get_args(annotation)):
        found = one.description if isinstance(one, FieldInfo) else None
        if found := found or _of_type(one):
            return found
    return ""


def _example(key: str, values: list[object]) -> str:
    """A key with the shortest of its values, as an author writes it; of parts, what they are."""
    listed = [one for value in values if isinstance(value, list) for one in value]
    inner = dict.fromkeys(type(one) for one in (*listed, *values) if isinstance(one, Written))
    if inner:
        return "a list of " * bool(listed) + " or ".join(map(_link, inner))
    plain = ({key: one.strip() if isinstance(one, str) else one} for one in values)
    texts = (yaml.safe_dump(one, **_FLOW) for one in plain)
    shortest = min((line(one)[1:-1] for one in texts), key=len)
    return f"`{textwrap.shorten(shortest, 100, placeholder=' …')}`"


def line(text: str) -> str:
    """A text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
