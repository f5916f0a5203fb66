"""One YAML file → one validated model, or every mistake in it, each at its place.

Also the walk over a model's fields that tells prose from expressions, ids and plain words.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import chain
from operator import getitem
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from proofbook.generator.content import keys
from proofbook.generator.content.draws import CALL, as_written
from proofbook.generator.content.errors import ContentError, ContentErrors, nearest, place_of
from proofbook.generator.content.prose import expressions, faults
from proofbook.generator.content.words import LACKS, NOTHING, Written, marks
from proofbook.generator.content.yaml_source import Path, YamlFile, parse
from proofbook.runners.system.errors import near

ModelT = TypeVar("ModelT", bound=Written)
WrittenT = TypeVar("WrittenT", bound=Written, covariant=True)
NUMBERS = ("bare numeral", "spelled quantity", "quantity")  # faults that a citation excuses
KEYED = {"missing": -1, "extra_forbidden": -1, LACKS: None}  # ends of their places
TEXTS = ("line", "prose", "page")  # the marks of Markdown with expressions
_PLAIN = (  # what pydantic says, and what is said instead
    (r"\w+ should ", "must "),
    ("a valid string", "text; quote it"),
    ("a valid list", "a list"),
    ("a valid dictionary.*", "a part with keys"),
    ("Value error, | after validation", ""),
)
# What its quotes have made a text: another text in quotes, a list, or a key with its value.
_QUOTED = re.compile(r"""'(.*)'|"(.*)"|(\[.*\]|\{.*\}|[\w-]+: .*)""", re.DOTALL)


class TextField(NamedTuple):
    """One text of a document: where it stands, what it is, what it says, the part it is of."""

    path: Path
    mark: str | None  # line, prose, page, expression, the kind of an id; None for plain text
    text: str
    part: BaseModel

    @property
    def expressions(self) -> list[str]:
        """The expressions within a text, or the one that the field is."""
        if self.mark in TEXTS:
            return [expression.text for expression in expressions(self.text)]
        return [self.text] if self.mark == "expression" else []


@dataclass(frozen=True, eq=False)
class Document(Generic[WrittenT]):
    """A validated file and where everything in it stands."""

    model: WrittenT
    source: YamlFile

    @cached_property
    def fields(self) -> tuple[TextField, ...]:
        """Every text of the file, in the order in which the models declare it."""
        return tuple(fields_of(self.model))

    def text_faults(self, programs: str = "", *, has_units: bool = True) -> Iterator[ContentError]:
        """Yield ContentErrors of its Markdown texts, but none on code that `programs` contains.

        Where no value has a unit, since there are no runs, authors write units behind values.
        """
        for field in self.fields:
            for fault in faults(field.text, field.mark) if field.mark in TEXTS else ():
                code = re.escape(fault.code)
                is_shown = code and re.search(rf"(?<![\w.]){code}(?![\w.])", programs)
                is_given = fault.message.startswith("unit ") and not has_units
                # An item outside a book that cites its source may hold numbers.
                if fault.message.startswith(NUMBERS) and field.path[0] == "items":
                    is_given = "source" in self.source.document["items"][field.path[1]]
                if not is_shown and not is_given:
                    yield self.error_in(field, fault.offset, fault.message)
        if CALL in self.source.text:
            place = place_of(self.source.text, self.source.text.index(CALL))
            message = f"{CALL}…) is the build's own; name a setting of draws:"
            yield ContentError(self.source.file, *place, message)

    def error(self, path: Path, message: str) -> ContentError:
        """An error at a value of this file."""
        return self.source.error(path, as_written(message))

    def error_in(self, field: TextField, offset: int, message: str) -> ContentError:
        """An error at a character of a text; at its beginning where short names are written out."""
        place = self.source.places.get(field.path)
        is_as_written = place is not None and place.value.value == field.text
        at = offset if is_as_written else None
        return self.source.error(field.path, as_written(message), offset=at)


@lru_cache(maxsize=4096)
def read(
    file: str, text: str, model: type[ModelT], beliefs: frozenset[tuple[str, str]] = frozenset()
) -> Document[ModelT]:
    """A `Document` of YAML text, validated as `model`, cached; ContentErrors holds all mistakes.

    `file` is its name in messages; `beliefs` are misconceptions, each with the claim that refutes
    it.
    """
    return validated(parse(file, text), model, beliefs)


def validated(
    source: YamlFile, model: type[ModelT], beliefs: frozenset[tuple[str, str]] = frozenset()
) -> Document[ModelT]:
    """A `Document` of a parsed file, validated as `model`; ContentErrors holds all its mistakes."""
    try:
        part = model.model_validate(source.document, context=dict(beliefs))
        return Document(part, source)
    except ValidationError as error:
        raise ContentErrors(_located(source, model, error.errors())) from None


def _located(
    source: YamlFile, model: type[Written], details: Iterable[ErrorDetails]
) -> Iterator[ContentError]:
    """Every mistake at its place; a misspelt key is not reported as missing as well."""
    keyed: dict[Path, list[ErrorDetails]] = {}
    for detail in details:
        path = _path(source.document, detail["loc"][: KEYED.get(detail["type"])])
        if detail["type"] in KEYED:
            keyed.setdefault(path, []).append(detail)
        elif detail["type"] == "union_tag_invalid":
            tag, kinds = detail["ctx"]["tag"], re.findall("'(.+?)'", detail["ctx"]["expected_tags"])
            yield source.error((*path, "kind"), f"no kind {tag!r}{nearest(tag, kinds)}")
        else:
            key = next((part for part in reversed(path) if isinstance(part, str)), "file")
            message = detail["msg"]
            for pattern, plain in _PLAIN:
                message = re.sub(pattern, plain, message)
            described = f"{key}: {message[:1].lower()}{message[1:]}{_other_form(detail)}"
            yield source.error(path, described, at_key="[key]" in detail["loc"])
    for path, of_part in keyed.items():
        yield from _of_keys(source, model, path, of_part)


def _of_keys(
    source: YamlFile, model: type[Written], path: Path, details: list[ErrorDetails]
) -> Iterator[ContentError]:
    """A line for each unknown key of a part, and one line for all keys that it lacks."""
    models = keys.models_at(model, details[0]["loc"][: KEYED[details[0]["type"]]])
    part = reduce(getitem, path, source.document)
    written = {key for key, value in part.items() if value not in NOTHING}
    lacking: list[tuple[str, ...]]
    lacking = [(str(detail["loc"][-1]),) for detail in details if detail["type"] == "missing"]
    groups = dict.fromkeys(group for part_model in models for group in part_model.ONE_OF)
    lacking += [group for group in groups if written.isdisjoint(group)]
    for key in (
        str(detail["loc"][-1]) for detail in details if detail["type"] == "extra_forbidden"
    ):
        ours = {*chain(*map(keys.properties, models))}
        meant = near(key, chain(*lacking)) or near(key, ours - written)
        hint = nearest(key, [meant] if meant else ours)
        if not meant and key in keys.all_keys(model):
            hint = "; it belongs to another part"
        if ": " in key:
            meant = key.partition(":")[0]
            hint = "; in quotes, it is one key without a value: quote the value alone"
        lacking = [group for group in lacking if meant not in group]
        yield source.error((*path, key), f"unknown key {key!r}{hint}", at_key=True)
    if lacking:
        told = ", ".join(keys.explained(group, models) for group in lacking)
        yield source.error(path, f"missing key{'s' * (len(lacking) > 1)} {told}")


def _other_form(detail: ErrorDetails) -> str:
    """The end of a message: how to write what stands there as a text but should be none."""
    written = detail["input"]
    if not isinstance(written, str) or detail["type"] in ("string_too_long", "string_too_short"):
        return ""
    if match := _QUOTED.fullmatch(written.strip()):
        return f"; in quotes it is a text, so write {next(filter(None, match.groups()), '…')}"
    is_list = detail["type"] == "list_type" and re.fullmatch(r"[\w@.#, -]+", written)
    return f"; write [{written}]" if is_list else ""


def _path(written: Any, place: Path) -> Path:  # noqa: ANN401
    """The place of an error in the file, without pydantic's kinds of items and marks."""
    path: list[str | int] = []
    for part in place:
        with suppress(KeyError, IndexError, TypeError):
            written = written[part]
            path.append(part)
    return tuple(path)


def fields_of(model: BaseModel, path: Path = ()) -> Iterator[TextField]:
    """Every text of a part of a file, in the order in which the models declare it."""
    for name, key, mark in marks(type(model)):
        yield from _walk(getattr(model, name), mark, (*path, key), model)


def _walk(value: object, mark: str | None, path: Path, part: BaseModel) -> Iterator[TextField]:
    if isinstance(value, str):
        yield TextField(path, mark, value, part)
    elif isinstance(value, BaseModel):
        yield from fields_of(value, path)
    elif isinstance(value, list):
        for position, element in enumerate(value):
            yield from _walk(element, mark, (*path, position), part)
    elif isinstance(value, Mapping):
        for key, element in value.items():
            yield from _walk(element, mark, (*path, key), part)
