"""The labs: what the grader says of each solution, and of programs that people write.

A run is one program of a lab on the ranks of its strategy, graded in the case of seed 0, as
`python -m runners lab` would. Rank 0 records how each requirement came out.

    python -m runners run labs --full
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import torch.distributed as dist

from runners.core.declared.experiment import Declaration
from runners.core.declared.training_settings import ProgramSettings
from runners.core.ranks.rank import Rank
from runners.core.trace.schema import Status
from runners.judging.ranks import JudgedRank, RankResult
from runners.labs import grading
from runners.labs.benches import BENCHES
from runners.system.book import ROOT

QUESTION = "Which programs obey the laws of a lab, and where does each other one fail first?"
PROGRAMS = ("content/topics/*/labs/*/solved.py", "content/topics/*/labs/*/wrong/*.py")
WORLD_SIZE = 4
SEED = 0
ENDS = re.compile(r"^# ends: (\w+)$", re.MULTILINE)
STATUSES: dict[str, Status] = {"hung": "deadlocked", "exception": "failed"}


def graded(rank: Rank[ProgramSettings]) -> None:
    """Run a program on its bench; rank 0 records how each requirement came out."""
    file = ROOT / rank.settings.program
    bench = BENCHES[_lab(file)]
    case = grading.case_of(bench, rank.world_size, SEED)
    judged = JudgedRank(rank.rank, rank.world_size, [str(file)])
    with rank.phase("program"), judged.meter:
        returned = grading.attempt(judged, bench.__name__, file, case)
    seen: list[RankResult] = [RankResult(0)] * rank.world_size
    dist.all_gather_object(seen, judged.result(dict(returned)))
    if rank.rank:
        return
    rows = grading.rows(bench, case, seen)
    first = next((row for row in rows if row.state != "holds"), None)
    rank.measure("first_failed", first.requirement if first else "")
    rank.measure("says", first.says if first else "")
    for row in rows:
        rank.measure(f"{row.requirement}_state", row.state)
        if row.allowed is not None:
            rank.measure(f"{row.requirement}_allowed", row.allowed, unit="bytes")
        if row.observed is not None:
            rank.measure(f"{row.requirement}_observed", row.observed, unit="bytes")


def _lab(file: Path) -> str:
    """The lab of a program of it."""
    return (file.parent.parent if file.parent.name == "wrong" else file.parent).name


def _declared(file: Path) -> Declaration[ProgramSettings]:
    ends = ENDS.search(file.read_text(encoding="utf-8"))
    is_wrong = file.parent.name == "wrong"
    declaration = partial(Declaration, "graded", WORLD_SIZE, passes=("timed",), full=is_wrong)
    settings = ProgramSettings(program=file.relative_to(ROOT).as_posix())
    expected: Status = STATUSES[ends[1]] if ends else "completed"
    return declaration(settings=settings, expected=expected, only_on_cpu=True)


RUNS = {
    f"{_lab(file)}_{file.stem}": _declared(file)
    for pattern in PROGRAMS
    for file in sorted(ROOT.glob(pattern))
}
