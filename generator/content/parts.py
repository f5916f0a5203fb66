"""The parts of a file of YAML: which keys each takes, what they are, and what it cannot do without.

In: models. Out: words of messages, and of the page of all keys (`keys.py`).
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, get_args, get_origin

from generator.content.words import Written


def outermost(annotation: object) -> Iterator[type[Written]]:
    """The parts that a type leads to, without those within them."""
    if isinstance(annotation, type) and issubclass(annotation, Written):
        yield annotation
    for one in get_args(annotation):
        yield from outermost(one)


def is_list(annotation: object) -> bool:
    """Whether a type holds several things."""
    return get_origin(annotation) in (list, dict) or any(map(is_list, get_args(annotation)))


def limits(schema: dict[str, Any]) -> Iterator[str]:
    """How many parts a list or a mapping has."""
    for one in (schema, *schema.get("anyOf", ())):
        least = one.get("minItems", one.get("minProperties"))
        most = one.get("maxItems", one.get("maxProperties"))
        if least == most and least:
            yield f"exactly {least}"
            continue
        yield from (f"at least {least}",) if least else ()
        yield from (f"at most {most}",) if most else ()


def said(schema: dict[str, Any]) -> str:
    """What a schema says of a key, else the words that the key takes."""
    if "description" in schema:
        return str(schema["description"])
    if words := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return " · ".join(f"`{one}`" for one in words)
    within = [*schema.get("anyOf", ()), schema.get("items")]
    return next(filter(None, map(said, filter(None, within))), "")


@cache
def properties(model: type[Written]) -> dict[str, dict[str, Any]]:
    """The schema of each key of a part."""
    whole = model.model_json_schema()
    if "properties" not in whole:  # it holds itself
        whole = whole["$defs"][model.__name__]
    found: dict[str, dict[str, Any]] = whole["properties"]
    return found


def at(model: type[Written], place: Iterable[str | int]) -> list[type[Written]]:
    """The models that what stands at a place of a file may have; a kind of part tells them apart.

    Args:
        model: of the file.
        place: as pydantic names it: keys, positions, kinds.
    """
    found = [model]
    for step in place:
        fields = [(one, field) for one in found for field in one.model_fields.items()]
        of_kind = [one for one, (name, field) in fields
                   if name == "kind" and step in get_args(field.annotation)]  # fmt: skip
        if len(found) > 1 and of_kind:
            found = of_kind
        elif held := [field for _, (name, field) in fields if step in (name, field.alias)]:
            found = [part for field in held for part in outermost(field.annotation)]
    return found


def needed(model: type[Written]) -> list[str]:
    """What a part cannot do without, each in quotes."""
    fields = model.model_fields.items()
    keys = [repr(field.alias or name) for name, field in fields if field.is_required()]
    return [*keys, *map(either, model.ONE_OF)]


def either(keys: Iterable[str]) -> str:
    """Keys of which one has to stand."""
    return " or ".join(map(repr, keys))


def explained(key: str, models: Iterable[type[Written]]) -> str:
    """A key that is missing, and what it is."""
    model = next((one for one in models if key in properties(one)), None)
    if model is None:
        return repr(key)
    schema = properties(model)[key]
    is_called = (one for name, one in model.model_fields.items() if key in (name, one.alias))
    annotation = next(is_called).annotation
    words = ", ".join(schema.get("enum", ())) or re.split("[.;:]", said(schema))[0]
    if inner := [*outermost(annotation)][:1]:
        several = ["several", *limits(schema), "each"] if is_list(annotation) else ["a part"]
        words = f"{', '.join(several)} with {', '.join(needed(inner[0])) or 'keys of its own'}"
    return f"{key!r} ({words})" if words else repr(key)
