"""YAML with places: a file's text becomes plain values, each with the line and column it came from.

The loader is YAML's safe one, narrowed further: no tags, no duplicate keys, text keys only. Nothing
an author writes can make an object.
"""

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from proofbook.generator.content.errors import ContentError, ContentErrors, place_of

Path = tuple[str | int, ...]
Mistake = tuple[Path, str]  # where something is wrong, from the part at hand on, and why
_TAG = "tag:yaml.org,2002:"
_KINDS = {f"{_TAG}{kind}" for kind in ("map", "seq", "str", "null", "bool", "int", "float")}
_OPENING = re.compile(r"[ -]*(?:[\w-]+:)? *\{\{")  # a value that begins with an expression
_BRACES = "quote a text that begins with {{"
_HINTS = {  # what to do, by a part of what the parser says
    "cannot start any token": "write spaces, not a tab, and quote a text that begins with "
    "this character",
    "mapping values are not allowed": "quote text that holds a colon, and let keys begin alike",
    "did not find expected": "let what belongs together begin alike, close what is open, and quote "
    "text that holds one of , ? [ ] { } or a quotation mark",
    "found a tab": "write spaces, not a tab",
    "unknown escape character": "between double quotes, write \\\\ for a backslash",
    "undefined alias": "quote a text that begins with *",
    "but found another document": "keep one document to a file",
    "unexpected end of stream": "a quotation mark is never closed",
}


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_VALUES = yaml.constructor.SafeConstructor()  # what a word of each kind stands for


class YamlPlace(NamedTuple):
    """Where a value stands, and its key; an element of a list stands for its own key."""

    key: yaml.Node
    value: yaml.Node


@dataclass(frozen=True, eq=False)
class YamlFile:
    """One YAML file: its plain values and where each of them stands.

    A path names a value by the keys and positions that lead to it: `("items", 0, "stem")`.
    """

    file: str
    text: str
    document: Any
    places: dict[Path, YamlPlace] = field(repr=False)

    def error(
        self, path: Path, message: str, *, offset: int | None = None, at_key: bool = False
    ) -> ContentError:
        """A ContentError at the line and column of a value, of its key, or of a character in it.

        A path that leads nowhere is cut back to the deepest value that exists.
        """
        while path not in self.places:
            path = path[:-1]
        if offset is not None:
            return ContentError(self.file, *self.place_in_text(path, offset), message)
        mark = self.places[path][0 if at_key else 1].start_mark
        return ContentError(self.file, mark.line + 1, mark.column + 1, message)

    def place_in_text(self, path: Path, offset: int) -> tuple[int, int]:
        """(line, column) in the file, from 1, of character `offset` of the value at YAML `path`.

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
        return place_of(self.text, index if word and index >= 0 else start)


@dataclass
class _Reader:
    """Turns nodes into values, and notes where each stands; it raises the first mistake."""

    file: str
    most: int  # values: as many as the file has characters, unless aliases multiply them
    places: dict[Path, YamlPlace] = field(default_factory=dict)

    def refused(self, node: yaml.Node, message: str) -> ContentErrors:
        mark = node.start_mark
        return ContentErrors([ContentError(self.file, mark.line + 1, mark.column + 1, message)])

    def value(self, node: yaml.Node, path: Path, key: yaml.Node) -> object:
        self.places[path] = YamlPlace(key, node)
        if len(self.places) > self.most:
            raise self.refused(key, "aliases (*name) repeat more than the file holds; write it out")
        if node.tag not in _KINDS:
            raise self.refused(node, f"the tag {node.tag!r} is not used here")
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, (*path, i), child) for i, child in enumerate(node.value)]
        try:
            return _VALUES.yaml_constructors[node.tag](_VALUES, node)
        except ValueError:
            raise self.refused(node, f"{node.value[:20]!r} begins no number to read") from None

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                is_expression = isinstance(key, yaml.MappingNode) and key.flow_style
                wrong = (node, _BRACES) if is_expression else (key, "a key must be a word")
                raise self.refused(*wrong)
            if key.value in mapping:
                found_at = self.places[(*path, key.value)].key.start_mark.line + 1
                message = f"duplicate key {key.value!r}; line {found_at} has it already"
                raise self.refused(key, message)
            mapping[key.value] = self.value(value, (*path, key.value), key)
        return mapping


def parse(file: str, text: str) -> YamlFile:
    """A `YamlFile`: plain values, each with its place; ContentErrors holds the first mistake."""
    reader = _Reader(file, len(text))
    try:
        root = yaml.compose(text, Loader=_LOADER)
        if root is None:
            raise ContentErrors([ContentError(file, 1, 1, "the file is empty")])
        return YamlFile(file, text, reader.value(root, (), root), reader.places)
    except yaml.YAMLError as error:
        raise ContentErrors([_syntax_error(file, text, error)]) from None
    except RecursionError:
        message = "brackets are nested too deep, or an alias (*name) stands within what it repeats"
        raise ContentErrors([ContentError(file, 1, 1, message)]) from None


def _syntax_error(file: str, text: str, error: yaml.YAMLError) -> ContentError:
    """The error of the parser with a hint, at its place or where braces open a value."""
    if isinstance(error, yaml.reader.ReaderError):
        before = text.encode()[: error.position].decode(errors="ignore")
        message = f"not YAML: a control character (U+{int(error.character):04X}); delete it"
        return ContentError(file, *place_of(before, len(before)), message)
    assert isinstance(error, yaml.MarkedYAMLError)
    marks = [mark for mark in (error.problem_mark, error.context_mark) if mark]
    lines = text.split("\n")
    for mark in marks:
        opening = _OPENING.match(lines[mark.line]) if mark.line < len(lines) else None
        if opening:
            return ContentError(file, mark.line + 1, opening.end() - 1, f"not YAML: {_BRACES}")
    hint = next((hint for problem, hint in _HINTS.items() if problem in str(error.problem)), "")
    line, column = marks[0].line + 1, marks[0].column + 1
    return ContentError(file, line, column, f"not YAML: {error.problem}; {hint}".rstrip("; "))
