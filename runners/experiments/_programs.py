"""Runs of the programs of `content/`, each executed in ranks as `torchrun` would execute it.

In: the programs as they declare themselves (`runners/traces/programs.py`). Out: a run for each. How
many ranks, under which budget and to which end, the file says itself; one that has a budget runs
without it too. No torch here: `runners/training/executed.py` executes them.
"""

from functools import partial

from proofbook.runners.api import ROOT, Declaration
from proofbook.runners.closed_forms.training_settings import ProgramSettings
from proofbook.runners.traces.programs import programs_matching


def declarations(pattern: str) -> dict[str, Declaration[ProgramSettings]]:
    """`{run: Declaration}` of programs the glob matches; with a budget also `…_unlimited`."""
    runs: dict[str, Declaration[ProgramSettings]] = {}
    for name, program in programs_matching(ROOT, pattern).items():
        path = program.path.relative_to(ROOT).as_posix()
        settings = ProgramSettings.from_json({"program": path, **program.settings})
        declaration = partial(
            Declaration, "program", program.ranks, settings, passes=("timed",), full=True
        )
        on_cpu = partial(declaration, only_on_cpu=True)  # the programs place their tensors there
        runs[name] = on_cpu(expected=program.expected, budget_bytes=program.budget_bytes)
        if program.budget_bytes is not None:
            runs[f"{name}_unlimited"] = on_cpu()
    return runs
