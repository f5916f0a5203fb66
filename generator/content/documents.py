"""One YAML file → one validated model, or every mistake in it, each at its place.

Also the walk over a model's fields that tells prose from expressions, ids and plain words.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Generic, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from generator.content import names
from generator.content.errors import ContentError, ContentErrors, near, nearest
from generator.content.exhibit import Listing
from generator.content.item_places import named_in
from generator.content.prose import Fault, faults, plain_faults
from generator.content.quiz import KINDS
from generator.content.short_names import given, written_out
from generator.content.words import Written, marks
from generator.content.yaml_source import Path, Source, parse

ModelT = TypeVar("ModelT", bound=Written)
UNKNOWN = "extra_forbidden"  # what pydantic calls the error
WrittenT = TypeVar("WrittenT", bound=Written, covariant=True)


class Field(NamedTuple):
    """One text of a document: where it stands, what it is, what it says."""

    path: Path
    mark: str | None  # line, prose, expression; None for plain text
    text: str

    @property
    def name(self) -> str:
        """The key it stands under; the list's key for an element of a list."""
        last = self.path[-1]
        if isinstance(last, int):
            last = next(part for part in reversed(self.path) if isinstance(part, str))
        return last


@dataclass(frozen=True, eq=False)
class Document(Generic[WrittenT]):
    """A validated file and where everything in it stands."""

    model: WrittenT
    source: Source

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Every text of the file, in the order in which the models declare it."""
        return tuple(fields_of(self.model))

    @cached_property
    def listings(self) -> tuple[Listing, ...]:
        """The code that the file shows."""
        return tuple(_listings(self.model))

    @cached_property
    def items_named(self) -> tuple[tuple[str, str], ...]:
        """The items that a lesson names, each with the field that names it."""
        return tuple(named_in(self.model))

    def text_faults(self) -> Iterator[ContentError]:
        """What its texts may not hold, whatever the traces say."""
        for one in self.fields:
            found: Iterable[Fault] = ()
            if one.mark in ("line", "prose"):
                found = faults(one.text, inline=one.mark == "line")
            elif one.mark is None:
                found = plain_faults(one.text)
            for fault in found:
                yield self.error(one.path, fault.message, offset=fault.offset)

    def error(self, path: Path, message: str, *, offset: int | None = None) -> ContentError:
        """An error at a value of this file, or at a character of its text."""
        if offset is not None:
            offset = self._place(path, offset)
        return self.source.error(path, message, offset=offset)

    def _place(self, path: Path, offset: int) -> int:
        """Where a character of a text stands in what the author wrote, with short names."""
        short, written = given(self.source.document, path)
        if not short or all(one.text == written for one in self.fields if one.path == path):
            return offset
        return names.place_before(written, short, offset, is_text="{{" in written)


@lru_cache(maxsize=4096)
def read(file: str, text: str, model: type[ModelT]) -> Document[ModelT]:
    """Parse and validate one file's text; the same text is read once.

    Raises:
        ContentErrors: everything wrong with its YAML, or with its fields.
    """
    source = parse(file, text)
    try:
        return Document(written_out(model.model_validate(source.document), {}), source)
    except ValidationError as error:
        raise ContentErrors(_all_located(source, model, error.errors())) from None


def _all_located(
    source: Source, model: type[BaseModel], details: Iterable[ErrorDetails]
) -> Iterator[ContentError]:
    """Every mistake at its place; a key that is misspelt is not missing as well."""
    unknown = {_written_path(source, one["loc"]) for one in details if one["type"] == UNKNOWN}
    meant = {(*path[:-1], _meant(source, model, path)) for path in unknown}
    for detail in details:
        if detail["type"] != "missing" or _written_path(source, detail["loc"]) not in meant:
            yield _located(source, model, detail)


def _located(source: Source, model: type[BaseModel], detail: ErrorDetails) -> ContentError:
    path = _written_path(source, detail["loc"])
    message, kind = detail["msg"], detail["type"]
    if kind == UNKNOWN:
        hint = nearest(str(path[-1]), _spare(source, model, path))
        return source.error(path, f"unknown key {str(path[-1])!r}{hint}", at_key=True)
    if kind == "missing":
        return source.error(path[:-1], f"missing key {str(path[-1])!r}")
    if kind == "literal_error" and "[key]" in detail["loc"]:
        return source.error(path, f"unknown key {str(path[-1])!r}: {_plain(message)}", at_key=True)
    return source.error(path, f"{_name(path)}: {_plain(message)}")


def _spare(source: Source, model: type[BaseModel], path: Path) -> list[str]:
    """The keys that may stand beside a key, and do not."""
    written = source.document
    for part in path[:-1]:
        written = _part(written, part)
    known = _fields_at(model, path[:-1], source.document)
    return [name for name in known if not isinstance(written, dict) or name not in written]


def _meant(source: Source, model: type[BaseModel], path: Path) -> str | None:
    """The key for which an unknown one was written, if one is near."""
    return near(str(path[-1]), _spare(source, model, path))


def _written_path(source: Source, loc: tuple[str | int, ...]) -> Path:
    """Where an error stands in the file: without pydantic's marks for keys and kinds of item."""
    path: list[str | int] = []
    current = source.document
    for position, part in enumerate(loc):
        if part == "[key]" or _is_kind(current, part, is_last=position == len(loc) - 1):
            continue
        if isinstance(part, int) and isinstance(current, dict):
            continue  # the only element of a list, written without the list
        path.append(part)
        try:
            current = current[part]
        except (KeyError, IndexError, TypeError):
            current = None
    return tuple(path)


def _is_kind(current: object, part: str | int, *, is_last: bool) -> bool:
    """Whether pydantic named the kind of an item here, which nobody wrote as a key."""
    if is_last or not isinstance(current, dict) or part in current:
        return False
    return part in KINDS and current.get("kind", "choice") == part


def _name(path: Path) -> str:
    return str(next((part for part in reversed(path) if isinstance(part, str)), "file"))


def _plain(message: str) -> str:
    for said, plain in (
        ("Input should be a valid string", "must be text; quote it"),
        ("Input should be a valid list", "must be a list"),
        ("Input should be ", "must be "),
        ("String should ", "must "),
        ("List should ", "must "),
        ("Value error, ", ""),
    ):
        message = message.replace(said, plain)
    return message[:1].lower() + message[1:]


def _fields_at(model: type[BaseModel], path: Path, written: object) -> list[str]:
    """The keys that the model at a path knows; an item's kind says which of several it is."""
    current: object = model
    for part in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            known = _by_key(current).get(str(part))
            current = known.annotation if known else None
        else:
            current = _element(current)
        current, written = _bare(current), _part(written, part)
        if get_origin(current) in (Union, types.UnionType) and isinstance(written, dict):
            current = KINDS.get(str(written.get("kind", "choice")))
    if isinstance(current, type) and issubclass(current, BaseModel):
        return list(_by_key(current))
    return []


def _by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields by the keys that authors write, such as `for`."""
    return {known.alias or name: known for name, known in model.model_fields.items()}


def _part(written: object, part: str | int) -> object:
    """What stands at a key or a position of plain YAML, or None."""
    if isinstance(written, dict):
        return written.get(part)
    return written[int(part)] if isinstance(written, list) else None


def _bare(annotation: object) -> object:
    """An annotation without Annotated and without None."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, types.UnionType):
            kept = [arg for arg in get_args(annotation) if arg is not type(None)]
            if len(kept) != 1:
                return annotation
            annotation = kept[0]
        else:
            return annotation


def _element(annotation: object) -> object:
    arguments = get_args(_bare(annotation))
    return arguments[-1] if arguments else None


def _listings(thing: object) -> Iterator[Listing]:
    if isinstance(thing, Listing):
        yield thing
    elif isinstance(thing, BaseModel):
        for name in type(thing).model_fields:
            yield from _listings(getattr(thing, name))
    elif isinstance(thing, list):
        for element in thing:
            yield from _listings(element)


def fields_of(model: BaseModel, path: Path = ()) -> Iterator[Field]:
    """Every text of a part of a file, in the order in which the models declare it."""
    for name, key, mark in marks(type(model)):
        yield from _walk(getattr(model, name), mark, (*path, key))


def _walk(value: object, mark: str | None, path: Path) -> Iterator[Field]:
    if isinstance(value, str):
        yield Field(path, mark, value)
    elif isinstance(value, BaseModel):
        yield from fields_of(value, path)
    elif isinstance(value, list):
        for position, element in enumerate(value):
            yield from _walk(element, mark, (*path, position))
    elif isinstance(value, Mapping):
        for key, element in value.items():
            yield from _walk(element, mark, (*path, key))
