"""Find the line of a field in the text of a JSON file, for a message about that field. Pure.

In: the text, and a path such as `("runs", "split", "ranks", 0, "status")`. Out: the line where the
value of that path begins. Reading a trace keeps no positions, since only an error needs one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

Path = tuple[str | int, ...]
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line, from 1, of the deepest part of a path that the text holds.

    Args:
        text: of a JSON file.
        path: keys and indices; a part that the text lacks ends it.
    """
    wanted, deepest, position = tuple(path), -1, 0
    for found, start in _values(text):
        depth = len(found)
        if depth > deepest and found == wanted[:depth]:
            deepest, position = depth, start
            if depth == len(wanted):
                break
    return text.count("\n", 0, position) + 1


def _values(text: str) -> Iterator[tuple[Path, int]]:
    """The path of each value, and where its key, or else the value itself, begins."""
    path: list[Any] = []
    is_array: list[bool] = []
    key_start: int | None = None
    is_key = False
    for token in _TOKEN.finditer(text):
        what = token.group()
        if what in "]}":
            path.pop() if path else None
            is_array.pop() if is_array else None
        elif what == ",":
            if is_array and is_array[-1]:
                path[-1] += 1
            is_key = bool(is_array) and not is_array[-1]
        elif what == ":":
            is_key = False
        elif is_key:
            path[-1], key_start = json.loads(what), token.start()
        else:
            yield tuple(path), token.start() if key_start is None else key_start
            key_start = None
            if what in "[{":
                is_array.append(what == "[")
                path.append(0 if what == "[" else "")
                is_key = what == "{"
