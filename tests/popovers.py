"""What a built site says of its numbers: each value with its source and its command.

Read from the data of a page, independently of the script that shows it to a reader.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

BLOCK = re.compile(
    r'<script type="application/json" id="pb-sources"[^>]*>(.*?)</script>', re.DOTALL
)
KINDS = ("given", "measured", "computed", "simulated", "cited", "stated")
WITHOUT_RUN = ("computed", "cited", "stated")


class Popover(NamedTuple):
    """One value as a reader sees it."""

    page: str  # its path under the site
    shown: str
    kind: str  # one of KINDS
    formula: str | None  # of a computed one; of a cited one, what is cited
    source: str | None  # where it was read off; None for what is computed
    on: str | None  # the machine, when, and which torch
    exactly: str | None  # the same with all digits; None for words and for what is computed
    command: str | None  # what measures it again; None where nothing does
    inputs: tuple[tuple[str, str], ...]  # that it was computed from, as printed, with their kinds
    nature: str | None  # where no real run decided it, what did
    here: str | None  # the same on the machine at hand, which is named, where that has it


def popovers(site: Path) -> list[Popover]:
    """Every value of every page that one can open, in the order of the pages."""
    found = []
    for path in sorted(site.rglob("*.html")):
        page = path.relative_to(site).as_posix()
        found += popovers_of(path.read_text(encoding="utf-8"), page)
    return found


def popovers_of(html: str, page: str = "") -> list[Popover]:
    """Every value of one page, by its number."""
    block = BLOCK.search(html)
    data = json.loads(block[1]) if block else {"values": []}
    data["runs"] = runs_of(data)
    return [_read(page, row, data) for row in data["values"]]


def runs_of(data: dict[str, Any]) -> list[list[Any]]:
    """The runs of a block: machine, experiment, run, when, software."""
    rows = ([*row, 0, 0] for row in data.get("runs", ()))
    named = (([data["words"][at] for at in row[:4]], row[4]) for row in rows)
    return [[machine, of, run, when, software] for (machine, of, when, software), run in named]


def _path(row: list[Any], data: dict[str, Any]) -> str:
    return ".".join(part for part in [*data["runs"][row[3]][1:3], row[2]] if part)


def _is_of_a_run(row: list[Any], data: dict[str, Any]) -> bool:
    """Whether a run measured or simulated a value."""
    is_read = KINDS[row[1]] in ("measured", "simulated") and len(row) > 3
    return is_read and isinstance(row[3], int) and any(data["runs"][row[3]][2:3])


def _read(page: str, row: list[Any], data: dict[str, Any]) -> Popover:
    shown, kind, formula, of, exact, _, nature, here, ran = row + [0] * (9 - len(row))
    inputs = [data["values"][at] for at in of] if isinstance(of, list) else []
    assert len(row) > 3 or KINDS[kind] in WITHOUT_RUN, row
    run = None if isinstance(of, list) or KINDS[kind] in WITHOUT_RUN else data["runs"][of]
    names = [part for part in run[1:3] if part] if run else []
    decided = [one for one in [row, *inputs] if _is_of_a_run(one, data)]
    paths = [_path(one if run else [*one[:2], "", one[3]], data) for one in decided]
    named = shlex.join(dict.fromkeys(paths))
    return Popover(
        page,
        shown,
        KINDS[kind],
        None
        if run or not formula
        else re.sub(r"\{(\d+)\}", lambda one: _path(inputs[int(one[1])], data), formula),
        " · ".join([*names, formula]) if run else None,
        ", ".join(filter(None, [run[0], *run[3:5]])) if run else None,
        (shown if exact == 1 else exact) or None,
        f"{data['command']} {named}" if decided else None,
        tuple((one[0], KINDS[one[1]]) for one in inputs),
        nature or None,
        f"{here} on {data['runs'][ran][0]}" if here else None,
    )
