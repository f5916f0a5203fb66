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

from proofbook.companions.labs.shelf import Desk, Lab, lab_named, labs
from proofbook.runners.system.book import program
from proofbook.runners.system.errors import FixableError
from proofbook.runners.system.files import write_text
from proofbook.runners.system.progress_lines import say

if TYPE_CHECKING:  # torch is loaded once there is something to grade
    from proofbook.companions.labs.grading import Grade, GradedRequirement
    from proofbook.runners.judging.ranks import ProgramFailure, RankResult

FIRST_SEED = 0  # of the page's table
FOLDER = Path("labs")
ADVICE = "AGENTS.md"  # where coding assistants look for what a folder asks of them
ASSISTANTS = Path(__file__).with_name("assistants.md")  # what it says there
LOOK_SECONDS = 0.2
MOST_RANKS = 8
LONG_SECONDS = 10.0  # twice as long as an attempt may take
KIB = 1024
NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
MARKS = {"holds": "✓", "fails": "✗", "not tried": "–"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add to a parser the lab's name, `--ranks`, `--seed`, `--watch` and `--reset`."""
    parser.add_argument("lab", nargs="?", default="", help="without it, all labs are listed")
    parser.add_argument("--ranks", type=int, default=4, help="from 2 to 8 (4)")
    parser.add_argument("--seed", type=int, help="of the second case, which is drawn otherwise")
    parser.add_argument("--watch", action="store_true", help="grade again at each save")
    parser.add_argument("--reset", action="store_true", help="begin anew; the old file is kept")


def main(arguments: argparse.Namespace) -> int:
    """List the labs, or start and grade a lab, with --watch at each save; return the exit code."""
    desk = Desk(FOLDER)
    if not arguments.lab:
        print("\n".join(_listed(desk)))
        return 0
    lab = lab_named(arguments.lab)
    if not 2 <= arguments.ranks <= MOST_RANKS:
        raise FixableError(f"--ranks must be from 2 to {MOST_RANKS}, not {arguments.ranks}")
    if arguments.reset and (kept := desk.reset(lab)):
        say(f"your file is kept as {kept}")
    _begin(lab, desk)
    graded: int | None = None
    while True:
        while (saved := _saved(desk.file(lab))) in (None, graded):
            time.sleep(LOOK_SECONDS)
        is_solved, graded = _grade(lab, desk, arguments), saved
        if not arguments.watch:
            return 0 if is_solved else 1
        say(f"waiting for the next save of {desk.file(lab)}; Ctrl-C ends this")


def _listed(desk: Desk) -> Iterator[str]:
    solved, in_order = desk.solved(), labs()
    width = max(len(lab.name) for lab in in_order) + 2
    for lab in in_order:
        state = "" if lab.name not in solved else " (solved)"
        if state and solved[lab.name] != lab.digest:
            state = " (solved before it changed: grade it again)"
        repair = "to repair: " if lab.words.get("kind") == "repair" else ""
        yield f"{lab.name:{width}}{repair}{lab.words['title']}{state}"
    yield f"\n`{program()} lab NAME` begins one"


def _begin(lab: Lab, desk: Desk) -> None:
    """Write the lab's file where there is none, and once what assistants read in this folder."""
    is_new = not FOLDER.exists()
    if not desk.start(lab, program()):
        return
    if is_new:  # a reader may change it, or delete it
        advice = ASSISTANTS.read_text(encoding="utf-8").replace("python -m runners", program())
        write_text(FOLDER / ADVICE, advice)
    say(f"wrote {desk.file(lab)}; edit it, and call this again\n\n{lab.words['task']}")


def _grade(lab: Lab, desk: Desk, arguments: argparse.Namespace) -> bool:
    """Grade a reader's file, print the report, and return whether the lab is solved."""
    from proofbook.companions.labs.benches import BENCHES
    from proofbook.companions.labs.grading import graded

    drawn = random.SystemRandom().randrange(1, 1 << 20)
    seeds = [FIRST_SEED, drawn if arguments.seed is None else arguments.seed]
    grades = []
    # The second case has another number of ranks: a program may fit one of them alone.
    for seed, ranks in zip(seeds, (arguments.ranks, 2 if arguments.ranks > 2 else 4), strict=True):
        told = f"still running on {ranks} ranks; what never ends is stopped by itself"
        waiting = threading.Timer(LONG_SECONDS, say, [told])
        waiting.daemon = True
        waiting.start()
        try:
            grades.append(graded(BENCHES[lab.name], desk.file(lab).resolve(), ranks, [seed]))
        finally:
            waiting.cancel()
        if not grades[-1].is_solved:
            break
    print("\n".join(report(lab, grades)), flush=True)
    if grades[-1].is_solved:
        desk.mark(lab)
    return grades[-1].is_solved


def report(lab: Lab, grades: Sequence[Grade]) -> Iterator[str]:
    """Yield printed lines: each requirement, and an explanation of the first to fail.

    The numbers are those of the case that failed, else of the one with the most ranks.
    """
    grade = max(grades, key=lambda one: (not one.is_solved, one.case.world_size))
    case, others = grade.case, [one.case for one in grades if one.is_solved and one is not grade]
    settings = ", ".join(f"{name} {value:,}" for name, value in case.settings.items())
    on = f"{case.world_size} ranks with seed {case.seed} ({settings})"
    passed = (f", and on {one.world_size} ranks with seed {one.seed}" for one in others)
    yield f"{lab.name} on {on}{''.join(passed) if grade.is_solved else ''}"
    yield from _failures(grade.ranks)
    first = grade.first_failed
    for law in grade.requirements:
        words = lab.requirements[law.id]
        numbers = [f"at most {printed_bytes(law.allowed)}"] if law.allowed is not None else []
        numbers += [f"measured {printed_bytes(law.observed)}"] if law.observed is not None else []
        formula = ": ".join([words["formula"], *[", ".join(numbers)] * bool(numbers)])
        yield f"  {MARKS[law.state]} {words['says']}  [{formula}]".replace("`", "")
        if law.state == "fails":
            yield f"      {law.says}"
        if law is first and law.state == "fails":
            yield f"      {_advice(law, words)}".replace("`", "")
            if section := words.get("section"):
                yield f"      The book: {section['page']}, “{section['section']}”"
    if first:
        if first.state == "not tried":
            yield "  –: not tried, since the program ended before"
        yield f"  --seed {case.seed} repeats this"


def _advice(law: GradedRequirement, words: Mapping[str, Any]) -> str:
    """The usual cause of a failure, by the beginning of the name of the tensor that differs."""
    by_name: Mapping[str, str] = words.get("fails_in", {})
    fits = (advice for name, advice in by_name.items() if law.what.startswith(name))
    return next(fits, str(words["fails"]))


def printed_bytes(number: float) -> str:
    """Bytes as readers compare them: exact where few, else also in KiB."""
    exact = f"{number:,.0f} bytes"
    return exact if number < KIB else f"{exact} ({number / KIB:,.1f} KiB)"


def _failures(ranks: Sequence[RankResult]) -> Iterator[str]:
    """The reader's own lines at which ranks ended; the causes before their effects on peers."""
    failed = [(rank.rank, rank.failure) for rank in ranks if rank.failure]
    causes = [(rank, failure) for rank, failure in failed if failure.kind != "peer failed"]
    effects = [(rank, failure) for rank, failure in failed if failure.kind == "peer failed"]
    for names, failure in _alike(causes or effects):
        yield f"  {names}: {failure.message}"
        if failure.line:
            yield f"    at {Path(failure.line).name}: {failure.code or ''}"
        elif failure.kind == "exception":
            yield "    raised by the bench, with what your code returned or left"
        elif failure.kind == "hung":
            yield "    outside your file: it has returned, and the bench waits for the other ranks"
    for names, failure in _alike(effects if causes else []):
        if failure.line:
            yield f"  {names}: was then at {Path(failure.line).name}: {failure.code or ''}"
    if any(failure.kind == "hung" for _, failure in failed) and len(failed) < len(ranks):
        yield f"  {_ranks([rank.rank for rank in ranks if not rank.failure])}: has returned"


def _alike(failed: Sequence[tuple[int, ProgramFailure]]) -> Iterator[tuple[str, ProgramFailure]]:
    """Failures that differ in numbers alone, such as addresses, once, with the names of ranks."""
    groups: dict[tuple[str | None, str], list[tuple[int, ProgramFailure]]] = {}
    for rank, failure in failed:
        place = failure.line, NUMBERS.sub("#", failure.message)
        groups.setdefault(place, []).append((rank, failure))
    for group in groups.values():
        yield _ranks([rank for rank, _ in group]), group[0][1]


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _saved(path: Path) -> int | None:
    """The time at which a file was last saved; None while an editor replaces it."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
