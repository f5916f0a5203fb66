"""Every value of a trace as a path an author pastes between braces. Pure; no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator

from runners.traces.records import Trace

_NAMED = ("name", "operation")  # a list of things with a name is indexed by it
_SHAPES = ("weight_shape", "shape_in", "shape_out")
_LONGEST_LIST = 8


def lines(trace: Trace) -> Iterator[str]:
    """One line a value: the expression, and the value as the trace holds it."""
    for run_name, run in trace.runs.items():
        prefix = f"{trace.experiment}.{run_name}"
        for path, value in _walk(prefix, run.model_dump(mode="json")):
            yield f"{{{{ {path} }}}}  {json.dumps(value)}"


def _walk(path: str, node: object) -> Iterator[tuple[str, object]]:
    if isinstance(node, dict):
        for key, value in node.items():
            step = f".{key}" if key.isidentifier() else f"[{key!r}]"
            yield from _walk(f"{path}{step}", value)
    elif isinstance(node, list) and any(isinstance(item, dict) for item in node):
        for index, item in enumerate(node):
            name = next((item[n] for n in _NAMED if item.get(n)), None)
            unique = name and sum(1 for other in node if name in other.values()) == 1
            yield from _walk(f"{path}[{name!r}]" if unique else f"{path}[{index}]", item)
    elif isinstance(node, list) and node:
        yield from _list(path, node)
    elif node is not None and node != [] and node != {}:
        yield path, node


def _list(path: str, node: list[object]) -> Iterator[tuple[str, object]]:
    """A list of numbers or words: as a shape, element by element, or only how long it is."""
    if path.endswith(_SHAPES):
        yield f"{path}|shape", node
    elif len(node) > _LONGEST_LIST:
        yield f"{path}|count", len(node)
    else:
        for index, item in enumerate(node):
            yield from _walk(f"{path}[{index}]", item)
