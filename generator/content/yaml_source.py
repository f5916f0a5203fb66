"""YAML with places: a file's text becomes plain values, each with the line and column it came from.

The loader is YAML's safe one, narrowed further: YAML 1.2's plain words (`No` is text), no aliases,
no tags, no duplicate keys, text keys only. Nothing an author writes can make an object.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import yaml

from generator.content.errors import ContentError, ContentErrors

Path = tuple[str | int, ...]
_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BREAKS = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_TAGS = {
    f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str", "null", "bool", "int", "float")
}
MAX_DEPTH = 40  # of mappings and lists in each other; the book's deepest have seven
_MANY = 1_000  # the C parser calls itself for each level, and ends the process where they are many
_LEADING = re.compile(rf"^[ \t?:-]{{{_MANY + 1}}}", re.MULTILINE)
_TOO_DEEP = f"nested more than {MAX_DEPTH} deep; make it flatter"
_ESCAPES = {"x": 2, "u": 4, "U": 8}


class _Loader(_BASE):  # type: ignore[misc]
    """The safe loader with YAML 1.2's words for booleans, null and numbers, and no others."""

    yaml_implicit_resolvers: dict[Any, Any] = {}


for _tag, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?[0-9]+$", list("-+0123456789")),
    (
        "float",
        r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


@dataclass(frozen=True, eq=False)
class Source:
    """One YAML file: its plain values and where each of them stands.

    A path names a value by the keys and positions that lead to it: `("items", 0, "stem")`.
    """

    file: str
    text: str
    document: Any

    @cached_property
    def root(self) -> yaml.Node:
        """The nodes, which know their places; composed again when an error asks for one."""
        root = yaml.compose(self.text, Loader=_Loader)
        assert root is not None, self.file
        return root

    def error(
        self, path: Path, message: str, *, offset: int | None = None, at_key: bool = False
    ) -> ContentError:
        """An error at a value, at its key, or at a character of its text.

        A path that leads nowhere is cut back to the deepest value that exists.
        """
        if offset is not None:
            line, column = self.place_in_text(path, offset)
        else:
            node = self._node(path, at_key)
            line, column = node.start_mark.line + 1, node.start_mark.column + 1
        return ContentError(self.file, line, column, message)

    def place_in_text(self, path: Path, offset: int) -> tuple[int, int]:
        """Line and column, from 1, of character `offset` of the text at `path`."""
        node = self._node(path)
        assert isinstance(node, yaml.ScalarNode), path
        index = self._index(node, offset)
        before = self.text[:index]
        starts = [0] + [found.end() for found in _BREAKS.finditer(before)]
        return len(starts), index - starts[-1] + 1

    def _index(self, node: yaml.ScalarNode, offset: int) -> int:
        """Where character `offset` of a scalar's value stands in the file's text.

        Folding and indentation change only white space, so the characters that are not white
        stand in the same order in the file and in the value: count those.
        """
        num_before = sum(not char.isspace() for char in node.value[:offset])
        index = node.start_mark.index
        for num_seen, index in enumerate(self._visible(node)):
            if num_seen == num_before:
                return index
        return index

    def _visible(self, node: yaml.ScalarNode) -> Iterator[int]:
        """The positions of a scalar's characters that are not white."""
        index, end = node.start_mark.index, node.end_mark.index
        if node.style in ("|", ">"):
            header = _BREAKS.search(self.text, index)
            index = header.end() if header else end
        elif node.style:
            index, end = index + 1, end - 1
        while index < end:
            step, visible = self._step(index, node.style)
            if visible:
                yield index
            index += step

    def _step(self, index: int, style: str | None) -> tuple[int, bool]:
        """How many characters of the file make the next one of the value; whether it shows."""
        char = self.text[index]
        if style == "'" and char == "'":
            return 2, True
        if style != '"' or char != "\\":
            return 1, not char.isspace()
        escaped = self.text[index + 1]
        if escaped in _ESCAPES:
            code = self.text[index + 2 : index + 2 + _ESCAPES[escaped]]
            return 2 + len(code), not chr(int(code, 16)).isspace()
        white = escaped in "tnrvfNLP_ \t" or _BREAKS.match(escaped) is not None
        return 2, not white

    def _node(self, path: Path, at_key: bool = False) -> yaml.Node:
        node, key = self.root, self.root
        for part in path:
            found = _child(node, part)
            if found is None:
                break
            key, node = found
        return key if at_key else node


def _child(node: yaml.Node, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == part:
                return key, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None


@dataclass
class _Reader:
    """Turns nodes into values and gathers what is wrong on the way."""

    file: str
    errors: list[ContentError] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def refuse(self, node: yaml.Node, message: str) -> None:
        mark = node.start_mark
        self.errors.append(ContentError(self.file, mark.line + 1, mark.column + 1, message))

    def value(self, node: yaml.Node, depth: int = 0) -> object:
        if depth > MAX_DEPTH:
            self.refuse(node, _TOO_DEEP)
            return None
        if id(node) in self.seen:
            self.refuse(node, "anchors and aliases are not used here; write the value out")
            return None
        self.seen.add(id(node))
        if node.tag not in _TAGS:
            self.refuse(node, f"the tag {node.tag!r} is not used here")
            return None
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, depth + 1)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, depth + 1) for child in node.value]
        return self.scalar(node)

    def mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.refuse(key, "a key must be a word")
                continue
            if key.value in found:
                self.refuse(key, f"duplicate key {key.value!r}; it stands above already")
            if key.value == "<<":
                self.refuse(key, "merge keys are not used here; write the keys out")
                continue
            found[key.value] = self.value(value, depth)
        return found

    def scalar(self, node: yaml.Node) -> object:
        kind, text = str(node.tag).removeprefix("tag:yaml.org,2002:"), str(node.value)
        if kind in ("map", "seq"):
            self.refuse(node, f"the tag {node.tag!r} is not used here")
            return None
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind in ("int", "float"):
            return self.number(node, text)
        return text

    def number(self, node: yaml.Node, text: str) -> int | float | str:
        """A number; text where it is none that a page could print."""
        try:
            number = float(text)
        except ValueError:
            self.refuse(node, f"{text!r} is not a number")
            return text
        if not math.isfinite(number):
            return text
        return int(text) if text.lstrip("+-").isdecimal() else number


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
    try:
        document = reader.value(root)
    except RecursionError:
        raise ContentErrors([ContentError(file, 1, 1, "nested too deeply")]) from None
    if reader.errors:
        raise ContentErrors(reader.errors)
    return Source(file=file, text=text, document=document)


def _composed(file: str, text: str) -> yaml.Node | None:
    """The nodes of a text; None where it holds nothing."""
    try:
        _refuse_depth(file, text)
        return yaml.compose(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        raise ContentErrors([_unreadable(file, text, error)]) from None
    except yaml.MarkedYAMLError as error:
        raise ContentErrors([_syntax_error(file, error)]) from None
    except ContentErrors:
        raise
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        first = (str(error).splitlines() or ["nested too deeply"])[0]
        raise ContentErrors([ContentError(file, 1, 1, f"not YAML: {first}")]) from None


def _refuse_depth(file: str, text: str) -> None:
    """Refuse a text that is nested too deeply for the parser, which reads it event by event."""
    if text.count("[") + text.count("{") < _MANY and not _LEADING.search(text):
        return
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            mark = event.start_mark
            place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            raise ContentErrors([ContentError(file, *place, _TOO_DEEP)])


def _unreadable(file: str, text: str, error: yaml.reader.ReaderError) -> ContentError:
    """A character that YAML does not allow, at its place."""
    found = _UNREADABLE.search(text)
    if not found:
        return ContentError(file, 1, 1, f"not YAML: {error.reason}")
    before = text[: found.start()]
    column = len(before) - before.rfind("\n")
    message = f"not YAML: a control character (U+{ord(found[0]):04X}); delete it"
    return ContentError(file, before.count("\n") + 1, column, message)


def _syntax_error(file: str, error: yaml.MarkedYAMLError) -> ContentError:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    problem = error.problem or "cannot be read"
    if "mapping values are not allowed" in problem:
        problem += "; quote text that holds a colon"
    if "another document" in problem:
        problem = "a second document begins here; keep one to a file"
    return ContentError(file, line, column, f"not YAML: {problem}")
