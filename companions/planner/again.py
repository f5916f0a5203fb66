"""Plans and comparisons with published numbers, computed again, as `reproduce` asks."""

from collections.abc import Sequence

from proofbook.companions.planner.answers import plan_grid
from proofbook.companions.planner.answers.published import COMPARISONS
from proofbook.companions.planner.answers.published import is_stale as is_stale
from proofbook.companions.planner.simulated import grid
from proofbook.runners.core.trace.records import Run, Trace
from proofbook.runners.system.errors import unknown
from proofbook.runners.traces.files import read


def trace_of(experiment: str) -> Trace | None:
    """The committed trace of plans or of a comparison; None for any other experiment."""
    if experiment in COMPARISONS:
        return read(COMPARISONS[experiment].path)
    if not experiment.startswith(plan_grid.PREFIX):
        return None
    plans = {plan_grid.experiment_of(path.stem): path for path in sorted(grid.PLANS.glob("*.json"))}
    if experiment not in plans:
        raise unknown("plan", experiment, plans)
    return plan_grid.as_trace(plan_grid.read_grid(plans[experiment]))


def runs_again(experiment: str, runs: Sequence[str]) -> dict[str, Run]:
    """These runs, computed now."""
    if experiment in COMPARISONS:
        return COMPARISONS[experiment].runs(runs)
    return grid.simulate_again(experiment, runs)
