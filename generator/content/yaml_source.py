"""YAML with places: a file's text becomes plain values, each with the line and column it came from.

The loader is YAML's safe one, narrowed further: YAML 1.2's plain words (`No` is text), no aliases,
no tags, no duplicate keys, text keys only. Nothing an author writes can make an object.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from generator.content.errors import ContentError, ContentErrors

Path = tuple[str | int, ...]
_TAG = "tag:yaml.org,2002:"
_KINDS = {f"{_TAG}{kind}" for kind in ("map", "seq", "str", "null", "bool", "int", "float")}
_OPENING = re.compile(r"[ -]*(?:[\w-]+:)? *\{\{")  # a value that begins with an expression
_BRACES = "quote a text that begins with {{"
_HINTS = {  # what to do, by a part of what the parser says
    r"'\t' that cannot start any token": "write spaces, not a tab",
    "that cannot start any token": "quote a text that begins with this character",
    "mapping values are not allowed": "quote text that holds a colon, and let a key begin below "
    "the first letter of the keys beside it",
    "but found '<scalar>'": "indent text that goes on as its first line; where a quotation mark "
    "closes too early, quote the whole text",
    "expected <block end>": "let this line begin below the first letter of the lines beside it",
    "sequence entries are not allowed": "begin the list on a line of its own",
    "undefined alias": "quote a text that begins with *",
    "could not find expected ':'": "indent text that goes on further than its key",
    "but found another document": "keep one document to a file",
    "expected ',' or": "close what is open, and quote text that holds one of , ? [ ] { }",
    "unexpected end of stream": "a quotation mark is never closed",
}


class _Loader(yaml.SafeLoader):
    """The safe loader with YAML 1.2's words for booleans, null and numbers, and no others."""

    yaml_implicit_resolvers: dict[Any, Any] = {}


class _Quick(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same by libyaml, five times as quick; what it refuses, `_Loader` explains."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


for _kind, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?[0-9]+$", list("-+0123456789")),
    (
        "float",
        r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(_pattern), _first)


class _Place(NamedTuple):
    """Where a value stands, and its key; an element of a list stands for its own key."""

    key: yaml.Node
    value: yaml.Node


@dataclass(frozen=True, eq=False)
class Source:
    """One YAML file: its plain values and where each of them stands.

    A path names a value by the keys and positions that lead to it: `("items", 0, "stem")`.
    """

    file: str
    text: str
    document: Any
    places: dict[Path, _Place] = field(repr=False)

    def error(
        self, path: Path, message: str, *, offset: int | None = None, at_key: bool = False
    ) -> ContentError:
        """An error at a value, at its key, or at a character of its text.

        A path that leads nowhere is cut back to the deepest value that exists.
        """
        if offset is not None:
            line, column = self.place_in_text(path, offset)
        else:
            while path not in self.places:
                path = path[:-1]
            mark = self.places[path][0 if at_key else 1].start_mark
            line, column = mark.line + 1, mark.column + 1
        return ContentError(self.file, line, column, message)

    def place_in_text(self, path: Path, offset: int) -> tuple[int, int]:
        """Line and column, from 1, of character `offset` of the text at `path`.

        Folding and indentation change only white space, so a word stands in the file as often
        before this place as it does in the value.
        """
        node = self.places[path].value
        assert isinstance(node, yaml.ScalarNode), path
        start, end = node.start_mark.index, node.end_mark.index
        if node.style in ("|", ">"):
            start = self.text.find("\n", start) + 1
        elif node.style:
            start += 1
        index = start
        word = re.match(r"\w+|\S", node.value[offset:])
        if word:
            for _ in range(node.value.count(word[0], 0, offset + len(word[0]) - 1) + 1):
                index = self.text.find(word[0], index + (index > start), end)
        if not word or index < 0:
            index = start
        return self.text.count("\n", 0, index) + 1, index - self.text.rfind("\n", 0, index)


@dataclass
class _Reader:
    """Turns nodes into values, notes their places and gathers what is wrong on the way."""

    file: str
    places: dict[Path, _Place] = field(default_factory=dict)
    errors: list[ContentError] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def refuse(self, node: yaml.Node, message: str) -> None:
        mark = node.start_mark
        self.errors.append(ContentError(self.file, mark.line + 1, mark.column + 1, message))

    def value(self, node: yaml.Node, path: Path, key: yaml.Node) -> object:
        self.places[path] = _Place(key, node)
        if id(node) in self.seen:
            self.refuse(node, "anchors and aliases are not used here; write the value out")
            return None
        self.seen.add(id(node))
        if isinstance(node, yaml.MappingNode) and node.tag in _KINDS:
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag in _KINDS:
            return [self.value(one, (*path, i), one) for i, one in enumerate(node.value)]
        kind = str(node.tag).removeprefix(_TAG)
        if node.tag not in _KINDS or kind in ("map", "seq"):
            self.refuse(node, f"the tag {node.tag!r} is not used here")
            return None
        return self.scalar(node, kind)

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                is_expression = isinstance(key, yaml.MappingNode) and key.flow_style
                wrong = (node, _BRACES) if is_expression else (key, "a key must be a word")
                self.refuse(*wrong)
                continue
            if key.value in found:
                self.refuse(key, f"duplicate key {key.value!r}; it stands above already")
            found[key.value] = self.value(value, (*path, key.value), key)
        return found

    def scalar(self, node: yaml.Node, kind: str) -> object:
        text = str(node.value)
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind == "str":
            return text
        try:
            if not math.isfinite(float(text)):
                return text
            return int(text) if kind == "int" else float(text)
        except ValueError:
            self.refuse(node, f"{text!r} is not a number")
            return text


def parse(file: str, text: str) -> Source:
    """Parse one YAML file.

    Args:
        file: its name in errors.
        text: what it holds.

    Raises:
        ContentErrors: see `errors.py`; a syntax error comes alone, as one clear line.
    """
    root = _composed(file, text)
    if root is None:
        raise ContentErrors([ContentError(file, 1, 1, "the file is empty")])
    reader = _Reader(file)
    document = reader.value(root, (), root)
    if reader.errors:
        raise ContentErrors(reader.errors)
    return Source(file, text, document, reader.places)


def _composed(file: str, text: str) -> yaml.Node | None:
    """The nodes of a text; None where it holds nothing."""
    with suppress(yaml.YAMLError):
        return yaml.compose(text, Loader=_Quick)
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = before.count("\n") + 1, len(before) - before.rfind("\n")
        message = f"not YAML: a control character (U+{ord(text[error.position]):04X}); delete it"
        raise ContentErrors([ContentError(file, *place, message)]) from None
    except yaml.MarkedYAMLError as error:
        raise ContentErrors([_syntax_error(file, text, error)]) from None


def _syntax_error(file: str, text: str, error: yaml.MarkedYAMLError) -> ContentError:
    """What the parser refused, with what to do, at its place or where a value's braces open."""
    marks = [mark for mark in (error.problem_mark, error.context_mark) if mark]
    lines = text.split("\n")
    for mark in marks:
        opening = _OPENING.match(lines[mark.line]) if mark.line < len(lines) else None
        if opening:
            return ContentError(file, mark.line + 1, opening.end() - 1, f"not YAML: {_BRACES}")
    line, column = (marks[0].line + 1, marks[0].column + 1) if marks else (1, 1)
    problem = error.problem or "cannot be read"
    hint = next((hint for said, hint in _HINTS.items() if said in problem), None)
    return ContentError(file, line, column, f"not YAML: {problem}{f'; {hint}' if hint else ''}")
