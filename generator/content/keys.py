"""`python -m generator keys`: every key that authors write, as a page of Markdown.

In: what the files of a book may hold, and what authors wrote. Out: a section for each part, also
for one that the book does not use yet, and in it a row for each key: what the docstring of the
part's model says of it, or the words that it takes, and as an example the shortest value in the
book.
"""

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from generator.content.documents import Document
from generator.content.draws import as_written
from generator.content.parts import is_list, limits, outermost, properties, said
from generator.content.words import MAX_LINE, MAX_PROSE, Written

_OPENING = f"""\
# Keys of the YAML files

A part takes the keys of its table, and no others. The column *is* stays empty where the name and
the example say it, or the part to which the example leads; a list that needs a number of parts says
so there. A key that this book does not use has no example. A text is Markdown with
`{{{{ expressions }}}}`, whose [functions](#functions) are at the end, and formulas,
`$2 (n - 1) / n$`. Where it has paragraphs, it may also have tables, footnotes, boxes and images.
A line takes at most {MAX_LINE:,} characters, a text of paragraphs {MAX_PROSE:,}."""
_FLOW: dict[str, Any] = {"default_flow_style": True, "width": 10_000, "allow_unicode": True}
_HEAD = "| key | required | is | example |\n|---|---|---|---|"


def page(models: Iterable[type[Written]], documents: Iterable[Document[Any]]) -> Iterator[str]:
    """What `generator keys` prints, part by part: every key, with an example from the book."""
    parts: dict[type[Written], list[tuple[str, Written]]] = {}
    for document in documents:
        for part in _parts(document.model):
            parts.setdefault(type(part), []).append((document.source.file, part))
    yield _OPENING
    reached: dict[type[Written], None] = {}
    for model in (*models, *parts):
        _models(model, reached)
    for model in reached:
        about, _, _ = (inspect.getdoc(model) or "").partition("\n\n")
        found = parts.get(model, [])
        file = found[0][0] if found else ""
        where = f" For example in `{file}`." if file not in about else ""
        rows = (
            _row(key, schema, model, [part for _, part in found])
            for key, schema in properties(model).items()
        )
        yield "\n".join([f"\n## {model.__name__}\n\n{line(about)}{where}\n\n{_HEAD}", *rows])


def about(word: str, sections: Iterable[str]) -> list[str]:
    """The sections of what is called so, and of parts that have such a key."""
    called = re.compile(rf"^(## |\| `){re.escape(word)}", re.IGNORECASE | re.MULTILINE)
    return [*filter(called.search, sections)]


def _models(annotation: object, found: dict[type[Written], None]) -> dict[type[Written], None]:
    """The parts of a file that a type leads to, each before those within it."""
    for model in outermost(annotation):
        if model not in found:
            found[model] = None
            for field in model.model_fields.values():
                _models(field.annotation, found)
    return found


def _row(key: str, schema: dict[str, Any], model: type[Written], parts: list[Written]) -> str:
    fields = model.model_fields
    name = next(one for one, field in fields.items() if key in (one, field.alias))
    required = "yes" if fields[name].is_required() else ""
    given = [getattr(part, name) for part in parts if name in part.model_fields_set]
    example = _example(key, fields[name].annotation, given)
    words, most = said(schema), ", ".join(limits(schema))
    words = f"{words.removesuffix('.')}; {most}" if words and most else words or most
    return f"| `{key}` | {required} | {line(words)} | {example} |"


def _parts(thing: object) -> Iterator[Written]:
    """A part of a file and all parts within it."""
    if isinstance(thing, Written):
        yield thing
        thing = [value for _, value in thing]
    for one in _within(thing):
        yield from _parts(one)


def _within(thing: object) -> list[object]:
    """What a list holds, or a mapping."""
    return (
        [*thing.values()] if isinstance(thing, dict) else thing if isinstance(thing, list) else []
    )


def _example(key: str, annotation: object, values: list[object]) -> str:
    """A key with the shortest of its values, as an author writes it; of parts, what they are."""
    if inner := [f"[{one.__name__}](#{one.__name__.lower()})" for one in outermost(annotation)]:
        return "a list of " * is_list(annotation) + " or ".join(inner)
    if not values:
        return ""
    plain = ({key: as_written(one.strip()) if isinstance(one, str) else one} for one in values)
    texts = (yaml.safe_dump(one, **_FLOW) for one in plain)
    shortest = min((line(one)[1:-1] for one in texts), key=len)
    return f"`{textwrap.shorten(shortest, 100, placeholder=' …')}`"


def line(text: str) -> str:
    """A text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
