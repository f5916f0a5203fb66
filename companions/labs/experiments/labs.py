"""The grades of all labs: of each solution, and of the wrong programs that people write.

A run is one program of a lab on the ranks of its strategy, graded in the case of seed 0, as
`python -m runners lab` would. Rank 0 records how each requirement came out.

    python -m runners run labs --full
"""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist

from proofbook.runners.closed_forms.training_settings import ProgramSettings
from proofbook.runners.core.declared.experiment import Declaration
from proofbook.runners.core.ranks.rank import Rank
from proofbook.runners.core.trace.schema import Status
from proofbook.runners.judging.ranks import JudgedRank, RankResult
from proofbook.runners.system.book import ROOT
from proofbook.runners.traces.differences import wrong_programs

QUESTION = "Which programs obey the laws of a lab, and where does each other one fail first?"
SOLUTIONS, WRONG = "content/topics/*/labs/*/solved.py", "content/topics/*/labs/*/wrong.yml"
WORLD_SIZE = 4
SEED = 0
STATUSES: dict[str, Status] = {"": "completed", "hung": "deadlocked", "exception": "failed"}


def graded(rank: Rank[ProgramSettings]) -> None:
    """Run the settings' program on its lab's bench; rank 0 records each requirement's outcome."""
    # Declarations are read without torch, which both of these load.
    from proofbook.companions.labs import grading
    from proofbook.companions.labs.benches import BENCHES

    file = ROOT / rank.settings.program
    is_wrong = file.parent.name == "wrong"
    lab = file.parent.parent if is_wrong else file.parent
    if is_wrong:
        stated = wrong_programs(lab / "wrong.yml")
        text = next(program.text for program in stated if program.path == file)
        file = rank.scratch / f"rank{rank.rank}" / file.name
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
    bench = BENCHES[lab.name]
    case = grading.case_of(bench, rank.world_size, SEED)
    judged = JudgedRank(rank.rank, rank.world_size, [str(file)])
    with rank.phase("program"), judged.meter:
        returned = grading.attempt(judged, bench.__name__, file, case)
    ranks: list[RankResult] = [RankResult(0)] * rank.world_size
    dist.all_gather_object(ranks, judged.result(dict(returned)))
    if rank.rank:
        return
    grade = grading.grade_of(bench, case, ranks)
    first = grade.first_failed
    rank.measure("first_failed", first.id if first else "")
    rank.measure("says", first.says if first else "")
    for law in grade.requirements:
        rank.measure(f"{law.id}_state", law.state)
        if law.allowed is not None:
            rank.measure(f"{law.id}_allowed", law.allowed, unit="bytes")
        if law.observed is not None:
            rank.measure(f"{law.id}_observed", law.observed, unit="bytes")


def _declared(
    program: Path, expected: Status = "completed", *, is_full: bool = False
) -> Declaration[ProgramSettings]:
    settings = ProgramSettings(program=program.relative_to(ROOT).as_posix())
    return Declaration(
        "graded", WORLD_SIZE, settings=settings, passes=("timed",), expected=expected,
        full=is_full, only_on_cpu=True,
    )  # fmt: skip


RUNS = {f"{path.parent.name}_solved": _declared(path) for path in sorted(ROOT.glob(SOLUTIONS))}
RUNS |= {
    f"{file.parent.name}_{program.name}": _declared(
        program.path, STATUSES[program.ends], is_full=True
    )
    for file in sorted(ROOT.glob(WRONG))
    for program in wrong_programs(file)
}
