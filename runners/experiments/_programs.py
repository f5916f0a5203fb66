"""Runs of the programs of `content/`, each executed in ranks as `torchrun` would execute it.

In: the programs as they declare themselves (`runners/traces/programs.py`). Out: a run for each. How
many ranks, under which budget and to which end, the file says itself; one that has a budget runs
without it too. No torch here: `runners/training/executed.py` executes them.
"""

from __future__ import annotations

from runners.plans.experiment import RunPlan
from runners.traces.programs import ROOT, Program, found
from runners.training.settings import ProgramSettings


def plans(pattern: str) -> dict[str, RunPlan[ProgramSettings]]:
    """The runs of programs: each as it declares itself, and without its budget if it has one."""
    runs: dict[str, RunPlan[ProgramSettings]] = {}
    for name, program in found(ROOT, pattern).items():
        runs[name] = _plan(program, limited=program.budget_bytes is not None)
        if program.budget_bytes is not None:
            runs[f"{name}_unlimited"] = _plan(program, limited=False)
    return runs


def _plan(program: Program, *, limited: bool) -> RunPlan[ProgramSettings]:
    path = program.path.relative_to(ROOT).as_posix()
    return RunPlan(
        "program",
        program.ranks,
        ProgramSettings.from_json({"program": path, **program.settings}),
        expected=program.expected if limited or program.budget_bytes is None else "completed",
        budget_bytes=program.budget_bytes if limited else None,
        passes=("budgeted",) if limited else ("timed",),
        full=True,
        only_on_cpu=True,  # the programs place their tensors there
    )
