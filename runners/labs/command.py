"""Labs: you write a technique, and runs grade it by the laws of the book.

    python -m runners lab                the labs, and which of them you have solved
    python -m runners lab ring           write labs/ring.py where there is none, and grade it
    python -m runners lab ring --watch   grade it again at each save, until Ctrl-C

Exit codes: 0 each requirement holds, 1 one fails, 2 a wrong call.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from runners.judging.ranks import Failure, Seen
from runners.labs.benches import BENCHES
from runners.labs.grading import Grade, graded
from runners.labs.shelf import Desk, Lab, lab, labs
from runners.system.errors import FixableError
from runners.system.patience import say

FIRST_SEED = 0  # of the page's table
FOLDER = Path("labs")
LOOK_SECONDS = 0.2
MOST_RANKS = 8
KIB = 1024
MARKS = {"holds": "✓", "fails": "✗", "not tried": "–"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("lab", nargs="?", default="", help="without it, all labs are listed")
    parser.add_argument("--ranks", type=int, default=4, help="from 2 to 8 (4)")
    parser.add_argument("--seed", type=int, help="of the second case, which is drawn otherwise")
    parser.add_argument("--watch", action="store_true", help="grade again at each save")
    parser.add_argument("--reset", action="store_true", help="begin anew; the old file is kept")


def main(arguments: argparse.Namespace) -> int:
    """List the labs, or grade one."""
    desk = Desk(FOLDER)
    if not arguments.lab:
        print("\n".join(_listed(desk)))
        return 0
    one = lab(arguments.lab)
    if not 2 <= arguments.ranks <= MOST_RANKS:
        raise FixableError(f"--ranks must be from 2 to {MOST_RANKS}, not {arguments.ranks}")
    if arguments.reset and (kept := desk.reset(one)):
        say(f"your file is kept as {kept}")
    if desk.start(one):
        say(f"wrote {desk.file(one)}; edit it, and call this again\n\n{one.words['task']}")
    saved = _saved(desk.file(one))
    is_solved = _grade(one, desk, arguments)
    while arguments.watch:
        while (now := _saved(desk.file(one))) in (saved, None):
            time.sleep(LOOK_SECONDS)
        saved = now
        is_solved = _grade(one, desk, arguments)
    return 0 if is_solved else 1


def _listed(desk: Desk) -> Iterator[str]:
    solved, found = desk.solved(), labs()
    width = max(len(one.name) for one in found) + 2
    for one in found:
        state = "" if one.name not in solved else " (solved)"
        if state and solved[one.name] != one.digest:
            state = " (solved before it changed: grade it again)"
        repair = "to repair: " if one.words.get("kind") == "repair" else ""
        yield f"{one.name:{width}}{repair}{one.words['title']}{state}"
    yield "\n`lab NAME` begins one"


def _grade(one: Lab, desk: Desk, arguments: argparse.Namespace) -> bool:
    """Grade a reader's file, and print what came of it."""
    drawn = random.SystemRandom().randrange(1, 1 << 20)
    seeds = [FIRST_SEED, drawn if arguments.seed is None else arguments.seed]
    # The second case has another number of ranks: a program may fit one of them alone.
    for seed, ranks in zip(seeds, (arguments.ranks, 2 if arguments.ranks > 2 else 4), strict=True):
        grade = graded(BENCHES[one.name], desk.file(one).resolve(), ranks, [seed])
        if not grade.is_solved:
            break
    print("\n".join(report(one, grade, arguments.ranks)), flush=True)
    if grade.is_solved:
        desk.mark(one)
    return grade.is_solved


def report(one: Lab, grade: Grade, first_ranks: int) -> Iterator[str]:
    """What a reader is told: a line for each requirement, and the first that fails explained."""
    case = grade.case
    settings = ", ".join(f"{name} {value:,}" for name, value in case.settings.items())
    before = f"{first_ranks} ranks with seed {FIRST_SEED}, and on " if grade.is_solved else ""
    on = f"{before}{case.world_size} ranks with seed {case.seed}"
    yield f"{one.name} on {on} ({settings})"
    yield from _failures(grade.seen)
    first = grade.first_failed
    for row in grade.rows:
        words = one.words["requirements"][row.requirement]
        allowed = "" if row.allowed is None else f": {printed_bytes(row.allowed)}"
        line = f"  {MARKS[row.state]} {words['says']}  [{words['formula']}{allowed}]"
        yield line.replace("`", "")
        if row is first and row.state == "fails":
            section = words["section"]
            yield f"      {row.says}"
            yield f"      {words['fails']}"
            yield f"      The book: {section['page']}, “{section['section']}”"
    if first:
        if first.state == "not tried":
            yield "  –: not tried, since the program ended before"
        yield f"  --seed {case.seed} repeats this"


def printed_bytes(number: float) -> str:
    """Bytes as readers compare them: exact where few, else also in KiB."""
    exact = f"{number:,.0f} bytes"
    return exact if number < KIB else f"{exact} ({number / KIB:,.1f} KiB)"


def _failures(seen: Sequence[Seen]) -> Iterator[str]:
    """The lines of the reader's own at which ranks ended; the cause before what peers met."""
    failed = [(one.rank, one.failure) for one in seen if one.failure]
    causes = [one for one in failed if one[1].kind != "peer failed"] or failed
    for place, ranks in _by_place(causes).items():
        file, said, code = place
        yield f"  {ranks}: {said}"
        if file:
            yield f"    at {file}: {code or ''}"


def _by_place(failed: list[tuple[int, Failure]]) -> dict[tuple[str | None, str, str | None], str]:
    found: dict[tuple[str | None, str, str | None], list[int]] = {}
    for rank, one in failed:
        place = f"{Path(one.line).name}" if one.line else None
        found.setdefault((place, one.message, one.code), []).append(rank)
    return {
        place: f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
        for place, ranks in found.items()
    }


def _saved(path: Path) -> int | None:
    """When a file was saved last; None where it is not there, as while an editor replaces it."""
    return path.stat().st_mtime_ns if path.exists() else None
