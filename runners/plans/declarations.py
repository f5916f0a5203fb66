"""Compare a trace with what its experiment declares: what differs makes the trace stale. No torch.

In: a trace whose code is unchanged. Out: the first field that the experiment's file declares
otherwise, in words. A digest of code tells that the file is the same; this tells that the trace
says what the file says: an edited budget, or an expectation that was made to fit an outcome.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from runners.plans.experiment import (
    Experiment,
    RunPlan,
    find,
    names,
    on_device,
    whole_is_full,
)
from runners.traces.digest import program_digests, source_digest
from runners.traces.records import Run, Trace
from runners.traces.schema import Setting

ROUNDING = 1e-12  # relative, of settings that are computed

# The code of each experiment when this process loaded it. A module is loaded once, and a server of
# pages lives longer than the code; a strict build is a new process.
_LOADED: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {}


def command_for(name: str) -> str | None:
    """The command that measures an experiment; None where none has this name."""
    if name not in names():
        return None
    full = " --full" if whole_is_full(name) else ""
    return f"python -m runners run {name}{full}"


def difference(trace: Trace) -> str | None:
    """What a trace says otherwise than its experiment's file; None where they agree.

    Runs that a trace lacks are no difference: `run` measures them. Nor is an experiment that
    cannot be loaded, or whose file was edited since this process loaded it: its digest tells.
    """
    code = (source_digest(trace.experiment), tuple(program_digests(trace.experiment).items()))
    if _LOADED.setdefault(trace.experiment, code) != code:
        return None
    device = "cuda" if any(run.device == "cuda" for run in trace.runs.values()) else "cpu"
    try:
        declared = _declared(trace.experiment, device)
    except (ValueError, SyntaxError, ImportError):  # unknown, or somebody is typing: no evidence
        return None
    if trace.question != declared.question:
        return "question differs from the experiment's declaration"
    for name, run in trace.runs.items():
        plan = declared.runs.get(name)
        if plan is None:
            return f"run {name} is not declared by the experiment"
        field = _differing(run, plan)
        if field:
            return f"{field} of run {name} differs from the experiment's declaration"
    return None


@lru_cache(maxsize=128)
def _declared(experiment: str, device: str) -> Experiment:
    """An experiment as it runs on a kind of device, where its models may be larger."""
    return on_device(find(experiment), device)


def _differing(run: Run, plan: RunPlan[Any]) -> str | None:
    """The first field that a run records otherwise than its plan declares it."""
    declared = {
        "strategy": plan.strategy,
        "world_size": plan.world_size,
        "seed": plan.seed,
        "budget_bytes": plan.budget_bytes,
        "nature": plan.nature,
        "expected_status": plan.expected,
        "expected_death": plan.expected_death,
    }
    for field, value in declared.items():
        if getattr(run, field) != value:
            return field
    settings = plan.settings.as_json()
    for name in sorted({*settings, *run.settings}):
        both = name in settings and name in run.settings
        if not both or not _is_same(run.settings[name], settings[name]):
            return f"settings.{name}"
    return None


def _is_same(recorded: Setting, declared: Setting) -> bool:
    """Whether two settings are equal, numbers but for rounding.

    Some follow from others by a sum, which Python adds more exactly since 3.12.
    """
    if isinstance(recorded, list) and isinstance(declared, list):
        return len(recorded) == len(declared) and all(map(_is_same, recorded, declared))
    if isinstance(recorded, float) and isinstance(declared, float):
        return math.isclose(recorded, declared, rel_tol=ROUNDING)
    return type(recorded) is type(declared) and recorded == declared
