"""YAML with places: a file's text becomes plain values, each with the line and column it came from.

The loader is YAML's safe one, narrowed further: YAML 1.2's plain words (`No` is text), no aliases,
no tags, no duplicate keys, text keys only. Nothing an author writes can make an object.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import yaml

from generator.content.errors import ContentError, ContentErrors

Path = tuple[str | int, ...]
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HALF = re.compile("[\ud800-\udfff]")
_BREAKS = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_TAGS = {
    f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str", "null", "bool", "int", "float")
}
MAX_DEPTH = 40  # of mappings and lists in each other; the book's deepest have seven
_FLAT = MAX_DEPTH // 2
_BRACKETS = re.compile(r"[\[\]{}]")
_LEADING = re.compile(rf"^[ \t?:-]{{{2 * _FLAT}}}", re.MULTILINE)  # or indented as far
_TOO_DEEP = f"nested more than {MAX_DEPTH} deep; make it flatter"
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
_ESCAPES = {"x": 2, "u": 4, "U": 8}


class _Loader(yaml.SafeLoader):
    """The safe loader with YAML 1.2's words for booleans, null and numbers, and no others."""

    yaml_implicit_resolvers: dict[Any, Any] = {}
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """A node, unless it lies too deep: composing one calls itself for what lies in it."""
        if self.depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(None, None, _TOO_DEEP, mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Quick(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same by libyaml, five times as quick; what it refuses, `_Loader` explains."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


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
        root = _composed(self.file, self.text)
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

    def value(self, node: yaml.Node) -> object:
        if id(node) in self.seen:
            self.refuse(node, "anchors and aliases are not used here; write the value out")
            return None
        self.seen.add(id(node))
        if node.tag not in _TAGS:
            self.refuse(node, f"the tag {node.tag!r} is not used here")
            return None
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child) for child in node.value]
        return self.scalar(node)

    def mapping(self, node: yaml.MappingNode) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                is_expression = isinstance(key, yaml.MappingNode) and key.flow_style
                wrong = (node, _BRACES) if is_expression else (key, "a key must be a word")
                self.refuse(*wrong)
                continue
            if key.value in found:
                self.refuse(key, f"duplicate key {key.value!r}; it stands above already")
            if key.value == "<<":
                self.refuse(key, "merge keys are not used here; write the keys out")
                continue
            found[key.value] = self.value(value)
        return found

    def scalar(self, node: yaml.Node) -> object:
        kind, text = str(node.tag).removeprefix("tag:yaml.org,2002:"), str(node.value)
        if _HALF.search(text):
            self.refuse(node, "half a character (a surrogate); delete it")
            return None
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
    document = reader.value(root)
    if reader.errors:
        raise ContentErrors(reader.errors)
    return Source(file=file, text=text, document=document)


def _composed(file: str, text: str) -> yaml.Node | None:
    """The nodes of a text; None where it holds nothing."""
    if not _has_tab_or_depth(text):
        with suppress(yaml.YAMLError, ValueError):
            return yaml.compose(text, Loader=_Quick)
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        raise ContentErrors([_unreadable(file, text, error)]) from None
    except yaml.MarkedYAMLError as error:
        raise ContentErrors([_syntax_error(file, text, error)]) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ContentErrors([ContentError(file, 1, 1, f"not YAML: {error}")]) from None


def _has_tab_or_depth(text: str) -> bool:
    """Whether libyaml would take what is refused here, or end the process in many levels."""
    depth = most = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket in "[{" else -1
        most = max(most, depth)
    return "\t" in text or most > _FLAT or bool(_LEADING.search(text))


def _unreadable(file: str, text: str, error: yaml.reader.ReaderError) -> ContentError:
    """A character that YAML does not allow, at its place."""
    found = _UNREADABLE.search(text)
    if not found:
        return ContentError(file, 1, 1, f"not YAML: {error.reason}")
    before = text[: found.start()]
    column = len(before) - before.rfind("\n")
    message = f"not YAML: a control character (U+{ord(found[0]):04X}); delete it"
    return ContentError(file, before.count("\n") + 1, column, message)


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
