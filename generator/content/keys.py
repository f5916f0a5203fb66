"""The keys that authors write: for `python -m generator keys`, and for messages of what is missing.

In: what the files of a book may hold, and what authors wrote. Out: a section for each part, also
for one that the book does not use yet, and in it a row for each key: what the docstring of the
part's model says of it, or the words that it takes, and as an example the shortest value in the
book.
"""

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, get_args, get_origin

import yaml

from proofbook.generator.content.draws import as_written
from proofbook.generator.content.words import MAX_LINE, MAX_PROSE, Written

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


def page(models: Iterable[type[Written]], documents: Iterable[Any]) -> Iterator[str]:
    """Yield Markdown sections: an opening; per model, a table of keys with shortest examples."""
    parts: dict[type[Written], list[tuple[str, Written]]] = {}
    for document in documents:
        for part in _parts_within(document.model):
            parts.setdefault(type(part), []).append((document.source.file, part))
    yield _OPENING
    reached: dict[type[Written], None] = {}
    for model in (*models, *parts):
        _models(model, reached)
    for model in reached:
        about, _, _ = (inspect.getdoc(model) or "").partition("\n\n")
        examples = parts.get(model, [])
        file = examples[0][0] if examples else ""
        where = f" For example in `{file}`." if file not in about else ""
        own = [part for _, part in examples]
        rows = (_row(key, schema, model, own) for key, schema in properties(model).items())
        yield "\n".join([f"\n## {model.__name__}\n\n{table_cell(about)}{where}\n\n{_HEAD}", *rows])


def sections_about(word: str, sections: Iterable[str]) -> list[str]:
    """The sections about a part or a key of this name."""
    heads = tuple(f"{mark}{word.lower()}" for mark in ("## ", "| `"))
    return [
        section
        for section in sections
        if any(line.startswith(heads) for line in section.lower().splitlines())
    ]


@cache
def properties(model: type[Written]) -> dict[str, Any]:
    """The schema of each key of a part."""
    whole = model.model_json_schema()
    if "properties" not in whole:  # it holds itself
        whole = whole["$defs"][model.__name__]
    return dict(whole["properties"])


def all_keys(model: type[Written]) -> frozenset[str]:
    """The keys of a part and of all parts within it."""
    return frozenset(key for part in _models(model, {}) for key in properties(part))


def models_at(model: type[Written], place: Iterable[str | int]) -> list[type[Written]]:
    """A list of models: those that pydantic's error location `place` in a `model` may refer to."""
    candidates = [model]
    for step in place:
        fields = [(held, field) for held in candidates for field in held.model_fields.items()]
        kinds = [candidate for candidate, (name, field) in fields
                 if name == "kind" and step in get_args(field.annotation)]  # fmt: skip
        held = [part for _, (name, field) in fields if step in (name, field.alias)
                for part in _outermost(field.annotation)]  # fmt: skip
        candidates = kinds if len(candidates) > 1 and kinds else held or candidates
    return candidates


def explained(keys: Sequence[str], models: Iterable[type[Written]]) -> str:
    """The quoted keys joined by `or`; of a single key also what the first model with it takes."""
    names = " or ".join(map(repr, keys))
    model = next((candidate for candidate in models if keys[0] in properties(candidate)), None)
    if model is None or len(keys) > 1:
        return names
    schema = properties(model)[keys[0]]
    (annotation,) = (field.annotation for name, field in model.model_fields.items()
                     if keys[0] in (name, field.alias))  # fmt: skip
    words = ", ".join(schema.get("enum", ())) or re.split("[.;:]", _description(schema))[0]
    if inner := [*_outermost(annotation)]:
        several = ["several", *_limits(schema), "each"] if _is_list(annotation) else ["a part"]
        fields = inner[0].model_fields.items()
        needs = [(field.alias or name,) for name, field in fields if field.is_required()]
        told = ", ".join(explained(key_group, ()) for key_group in (*needs, *inner[0].ONE_OF))
        words = f"{', '.join(several)} with {told or 'keys of its own'}"
    return f"{names} ({words})" if words else names


def _models(annotation: object, reached: dict[type[Written], None]) -> dict[type[Written], None]:
    """The parts of a file that a type leads to, outer ones first."""
    for model in _outermost(annotation):
        if model not in reached:
            reached[model] = None
            for field in model.model_fields.values():
                _models(field.annotation, reached)
    return reached


def _outermost(annotation: object) -> Iterator[type[Written]]:
    if isinstance(annotation, type) and issubclass(annotation, Written):
        yield annotation
    for argument in get_args(annotation):
        yield from _outermost(argument)


def _is_list(annotation: object) -> bool:
    return get_origin(annotation) in (list, dict) or any(map(_is_list, get_args(annotation)))


def _row(key: str, schema: dict[str, Any], model: type[Written], parts: list[Written]) -> str:
    fields = model.model_fields
    name = next(candidate for candidate, field in fields.items() if key in (candidate, field.alias))
    required = "yes" if fields[name].is_required() else ""
    given = [getattr(part, name) for part in parts if name in part.model_fields_set]
    example = _example(key, fields[name].annotation, given)
    description, limits = _description(schema), ", ".join(_limits(schema))
    told = [description.removesuffix(".") if limits else description, limits]
    return f"| `{key}` | {required} | {table_cell('; '.join(filter(None, told)))} | {example} |"


def _limits(schema: dict[str, Any]) -> Iterator[str]:
    for variant in (schema, *schema.get("anyOf", ())):
        least = variant.get("minItems", variant.get("minProperties"))
        most = variant.get("maxItems", variant.get("maxProperties"))
        if least == most and least:
            yield f"exactly {least}"
            continue
        yield from (f"at least {least}",) if least else ()
        yield from (f"at most {most}",) if most else ()


def _description(schema: dict[str, Any]) -> str:
    """The description of a key, else the words that it takes."""
    if "description" in schema:
        return str(schema["description"])
    if words := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return " · ".join(f"`{word}`" for word in words)
    within = [*schema.get("anyOf", ()), schema.get("items")]
    return next(filter(None, map(_description, filter(None, within))), "")


def _parts_within(value: object) -> Iterator[Written]:
    if isinstance(value, Written):
        yield value
        value = [part for _, part in value]
    held = [*value.values()] if isinstance(value, dict) else value
    for part in held if isinstance(held, list) else ():
        yield from _parts_within(part)


def _example(key: str, annotation: object, values: list[object]) -> str:
    """A key with its shortest value in the book; of parts, links to their tables."""
    if inner := [f"[{part.__name__}](#{part.__name__.lower()})" for part in _outermost(annotation)]:
        return "a list of " * _is_list(annotation) + " or ".join(inner)
    if not values:
        return ""
    plain = (as_written(value.strip()) if isinstance(value, str) else value for value in values)
    texts = (yaml.safe_dump({key: value}, **_FLOW) for value in plain)
    shortest = min((table_cell(text)[1:-1] for text in texts), key=len)
    return f"`{textwrap.shorten(shortest, 100, placeholder=' …')}`"


def table_cell(text: str) -> str:
    """A text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
