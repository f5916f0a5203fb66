"""`python -m generator keys`: every key that authors write, as a page of Markdown.

In: what authors wrote. Out: a section for each part of its files, and in it a row for each key:
what the docstring of the part's model says of it, or the words that it takes, and as an example
the shortest value in the book.
"""

import inspect
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from generator.content.documents import Document
from generator.content.draws import as_written
from generator.content.words import MAX_LINE, MAX_PROSE, Written

_OPENING = f"""\
# Keys of the YAML files

A part takes the keys of its table, and no others. The column *is* stays empty where the name and
the example say it, or the part to which the example leads; a list that needs a number of parts says
so there. A text is Markdown with `{{{{ expressions }}}}`, whose [functions](#functions) are at the
end, and formulas, `$2 (n - 1) / n$`. Where it has paragraphs, it may also have tables, footnotes,
boxes and images. A line takes at most {MAX_LINE:,} characters, a text of paragraphs
{MAX_PROSE:,}."""
_FLOW: dict[str, Any] = {"default_flow_style": True, "width": 10_000, "allow_unicode": True}
_HEAD = "| key | required | is | example |\n|---|---|---|---|"


def page(documents: Iterable[Document[Any]]) -> Iterator[str]:
    """What `generator keys` prints, line by line: every key, with an example from the book."""
    parts: dict[type[Written], tuple[str, list[Written]]] = {}
    for document in documents:
        for part in _parts(document.model):
            parts.setdefault(type(part), (document.source.file, []))[1].append(part)
    yield _OPENING
    for model, (file, found) in parts.items():
        about, _, _ = (inspect.getdoc(model) or "").partition("\n\n")
        where = f" For example in `{file}`." if file not in about else ""
        yield f"\n## {model.__name__}\n\n{line(about)}{where}\n\n{_HEAD}"
        whole = model.model_json_schema()
        if "properties" not in whole:  # it holds itself
            whole = whole["$defs"][model.__name__]
        for key, schema in whole["properties"].items():
            yield _row(key, schema, model, found)


def _row(key: str, schema: dict[str, Any], model: type[Written], parts: list[Written]) -> str:
    fields = model.model_fields
    name = next(one for one, field in fields.items() if key in (one, field.alias))
    required = "yes" if fields[name].is_required() else ""
    given = [getattr(part, name) for part in parts if name in part.model_fields_set]
    example = _example(key, given) if given else ""
    said, limits = _said(schema), ", ".join(_limits(schema))
    said = f"{said.removesuffix('.')}; {limits}" if said and limits else said or limits
    return f"| `{key}` | {required} | {line(said)} | {example} |"


def _limits(schema: dict[str, Any]) -> Iterator[str]:
    """How many parts a list or a mapping has."""
    for one in (schema, *schema.get("anyOf", ())):
        least = one.get("minItems", one.get("minProperties"))
        most = one.get("maxItems", one.get("maxProperties"))
        if least == most and least:
            yield f"exactly {least}"
            continue
        yield from (f"at least {least}",) if least else ()
        yield from (f"at most {most}",) if most else ()


def _said(schema: dict[str, Any]) -> str:
    """What a schema says of a key, else the words that the key takes."""
    if "description" in schema:
        return str(schema["description"])
    if "enum" in schema:
        return " · ".join(f"`{one}`" for one in schema["enum"])
    within = [*schema.get("anyOf", ()), schema.get("items")]
    return next(filter(None, map(_said, filter(None, within))), "")


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


def _example(key: str, values: list[object]) -> str:
    """A key with the shortest of its values, as an author writes it; of parts, what they are."""
    listed = [one for value in values for one in _within(value)]
    inner = dict.fromkeys(type(one) for one in (*listed, *values) if isinstance(one, Written))
    if inner:
        return "a list of " * bool(listed) + " or ".join(
            f"[{one.__name__}](#{one.__name__.lower()})" for one in inner
        )
    plain = ({key: as_written(one.strip()) if isinstance(one, str) else one} for one in values)
    texts = (yaml.safe_dump(one, **_FLOW) for one in plain)
    shortest = min((line(one)[1:-1] for one in texts), key=len)
    return f"`{textwrap.shorten(shortest, 100, placeholder=' …')}`"


def line(text: str) -> str:
    """A text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
