"""Labs: you write a technique, and runs grade it by the laws of the book.

    python -m runners lab                the labs, and which of them you have solved
    python -m runners lab ring           write labs/ring.py where there is none, and grade it
    python -m runners lab ring --watch   grade it again at each save, until Ctrl-C

Exit codes: 0 each requirement holds, 1 one fails, 2 a wrong call.
"""

from __future__ import annotations

import argparse
import random
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.labs.shelf import Desk, Lab, lab, labs
from runners.system.book import program
from runners.system.errors import FixableError
from runners.system.patience import say

if TYPE_CHECKING:  # torch is loaded once there is something to grade
    from runners.judging.ranks import ProgramFailure, RankResult
    from runners.labs.grading import Grade, Row

FIRST_SEED = 0  # of the page's table
FOLDER = Path("labs")
LOOK_SECONDS = 0.2
MOST_RANKS = 8
LONG_SECONDS = 10.0  # twice as long as an attempt may take
KIB = 1024
NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
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
    if desk.start(one, program()):
        say(f"wrote {desk.file(one)}; edit it, and call this again\n\n{one.words['task']}")
    graded: int | None = None
    while True:
        while (saved := _saved(desk.file(one))) in (None, graded):
            time.sleep(LOOK_SECONDS)
        is_solved, graded = _grade(one, desk, arguments), saved
        if not arguments.watch:
            return 0 if is_solved else 1
        say(f"waiting for the next save of {desk.file(one)}; Ctrl-C ends this")


def _listed(desk: Desk) -> Iterator[str]:
    solved, found = desk.solved(), labs()
    width = max(len(one.name) for one in found) + 2
    for one in found:
        state = "" if one.name not in solved else " (solved)"
        if state and solved[one.name] != one.digest:
            state = " (solved before it changed: grade it again)"
        repair = "to repair: " if one.words.get("kind") == "repair" else ""
        yield f"{one.name:{width}}{repair}{one.words['title']}{state}"
    yield f"\n`{program()} lab NAME` begins one"


def _grade(one: Lab, desk: Desk, arguments: argparse.Namespace) -> bool:
    """Grade a reader's file, and print what came of it."""
    from runners.labs.benches import BENCHES
    from runners.labs.grading import graded

    drawn = random.SystemRandom().randrange(1, 1 << 20)
    seeds = [FIRST_SEED, drawn if arguments.seed is None else arguments.seed]
    # The second case has another number of ranks: a program may fit one of them alone.
    for seed, ranks in zip(seeds, (arguments.ranks, 2 if arguments.ranks > 2 else 4), strict=True):
        told = f"still running on {ranks} ranks; what never ends is stopped by itself"
        waiting = threading.Timer(LONG_SECONDS, say, [told])
        waiting.daemon = True
        waiting.start()
        try:
            grade = graded(BENCHES[one.name], desk.file(one).resolve(), ranks, [seed])
        finally:
            waiting.cancel()
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
        words = one.requirements[row.requirement]
        numbers = [f"at most {printed_bytes(row.allowed)}"] if row.allowed is not None else []
        numbers += [f"measured {printed_bytes(row.observed)}"] if row.observed is not None else []
        law = ": ".join([words["formula"], *[", ".join(numbers)] * bool(numbers)])
        yield f"  {MARKS[row.state]} {words['says']}  [{law}]".replace("`", "")
        if row.state == "fails":
            yield f"      {row.says}"
        if row is first and row.state == "fails":
            yield f"      {_advice(row, words)}".replace("`", "")
            if section := words.get("section"):
                yield f"      The book: {section['page']}, “{section['section']}”"
    if first:
        if first.state == "not tried":
            yield "  –: not tried, since the program ended before"
        yield f"  --seed {case.seed} repeats this"


def _advice(row: Row, words: Mapping[str, Any]) -> str:
    """What such a failure usually means, by the beginning of the name of what differs."""
    by_name: Mapping[str, str] = words.get("fails_in", {})
    fits = (said for name, said in by_name.items() if row.what.startswith(name))
    return next(fits, str(words["fails"]))


def printed_bytes(number: float) -> str:
    """Bytes as readers compare them: exact where few, else also in KiB."""
    exact = f"{number:,.0f} bytes"
    return exact if number < KIB else f"{exact} ({number / KIB:,.1f} KiB)"


def _failures(seen: Sequence[RankResult]) -> Iterator[str]:
    """The lines of the reader's own at which ranks ended; the cause before what peers met."""
    failed = [(one.rank, one.failure) for one in seen if one.failure]
    causes = [one for one in failed if one[1].kind != "peer failed"]
    for ranks, one in _alike(causes or failed):
        yield f"  {ranks}: {one.message}"
        if one.line:
            yield f"    at {Path(one.line).name}: {one.code or ''}"
        elif one.kind == "exception":
            yield "    raised by the bench, with what your code returned or left"
        elif one.kind == "hung":
            yield "    outside your file: it has returned, and the bench waits for the other ranks"
    for ranks, one in _alike([one for one in failed if causes and one[1].kind == "peer failed"]):
        if one.line:
            yield f"  {ranks}: was then at {Path(one.line).name}: {one.code or ''}"
    if any(one.kind == "hung" for _, one in failed) and len(failed) < len(seen):
        yield f"  {_ranks([one.rank for one in seen if not one.failure])}: has returned"


def _alike(failed: Sequence[tuple[int, ProgramFailure]]) -> Iterator[tuple[str, ProgramFailure]]:
    """Failures that differ in numbers alone, such as addresses, with all their ranks."""
    found: dict[tuple[str | None, str], list[tuple[int, ProgramFailure]]] = {}
    for rank, one in failed:
        found.setdefault((one.line, NUMBERS.sub("#", one.message)), []).append((rank, one))
    for those in found.values():
        yield _ranks([rank for rank, _ in those]), those[0][1]


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _saved(path: Path) -> int | None:
    """When a file was saved last; None where it is not there, as while an editor replaces it."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
