"""What a page of a whole book never shows: a hole, or an item without a key.

In: a page as Markdown, with the sources of its values. Out: what is wrong with it, one line each.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.popovers import BLOCK, KINDS, WITHOUT_RUN, runs_of

# What the generator prints where a run, a value, a verdict, a key or an output is missing.
HOLES = (
    'class="pb-value[^"]*pb-absent', " data-open[ >]",
    'class="[^"]*pb-(?:does-not-apply|no-evidence|too-few-samples)',
    ">not measured here<", ">skipped<", "pb-caption[^\\n]*: skipped",
    "(?i:does not apply here|no evidence here|skipped here|this machine has no)",
    "(?i:open on this machine|leave this question open|no run has executed it)",
)  # fmt: skip
# Names of runs, which are those of all machines.
_NAMES = re.compile(r"<code>.*?</code>", re.DOTALL)
_VALUE = re.compile(r'data-v="(\d+)"')
_ITEM = re.compile(r'<form class="pb-item" data-item="([^"]+)".*?data-kind="(\w+)"', re.DOTALL)
_RIGHT = re.compile(r'<li data-verdict="right"([^>]*)>')
_OPTION = re.compile(r'class="(?:pb-line )?pb-option[" ]')


def holes(page: str) -> list[str]:
    """What a page says that it lacks."""
    body = _NAMES.sub("", _body(page))
    return [found[0] for one in HOLES for found in re.finditer(one, body)]


def machines_behind(section: str, page: str) -> set[str]:
    """The machines that measured what a section of a page prints."""
    block = BLOCK.search(page)
    data = json.loads(block[1]) if block else {}
    found = {one for number in _VALUE.findall(section) for one in read_off(int(number), data)}
    return {one.machine for one in found if one.machine}


class ReadOff(NamedTuple):
    """Where a value was read: its kind, the machine (a plan has none), and the experiment."""

    kind: str
    machine: str
    experiment: str | None


def read_off(number: int, data: dict) -> Iterator[ReadOff]:
    """Where a value of a page was read, or the values that it was computed from."""
    _, kind, _, of, *_ = [*data["values"][number], 0, 0]
    if isinstance(of, list):
        for one in of:
            yield from read_off(one, data)
    elif KINDS[kind] not in WITHOUT_RUN:
        machine, experiment, *_ = runs_of(data)[of]
        yield ReadOff(KINDS[kind], machine, experiment)


def unsound(page: str) -> list[str]:
    """The items of a page that have no key, or of one right option none or two."""
    return [
        found[1]
        for found in map(_ITEM.match, re.split(r'(?=<form class="pb-item")', page))
        if found and not _has_key(found.string, found[2])
    ]


def _has_key(item: str, kind: str) -> bool:
    right, options = _RIGHT.findall(item), _OPTION.findall(item)
    if " data-open" in item[: item.index(">")]:
        return False
    if kind in ("choice", "faulty_line"):
        return len(right) == 1
    if kind == "several":
        return 0 < len(right) < len(options)
    if kind in ("order", "match"):
        return len(right) == len(options) > 1
    return len(right) == 1 and ("data-number=" in right[0] or "data-words=" in right[0])


def _body(page: str) -> str:
    """A page without what stands above its Markdown, and without the sources of its values."""
    _, _, body = page.split("---\n", 2)
    return BLOCK.sub("", body)
