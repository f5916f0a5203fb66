"""How far a processor's instruction sets turn a training: it once more, under each of two.

In: a run of the reference machine, just measured. Out: the run with its `spread`, by which the
values of another processor are judged (`traces/tolerance.py`). No time of these passes is kept.
"""

from runners.measuring.gather import gather
from runners.measuring.launch import Launcher
from runners.measuring.progress import Progress
from runners.plans.experiment import Experiment
from runners.traces.records import Run
from runners.traces.spread import leaves, spread_of

# Of torch's own kernels, MKL and oneDNN. Under each, sums round otherwise than where a processor
# chooses for itself, AMD's or Intel's: on AMD's, MKL gives with AVX2 what it gives unasked.
INSTRUCTION_SETS = {
    "default": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
}
VARIABLES = tuple(INSTRUCTION_SETS["default"])


def with_spread(
    run: Run, name: str, experiment: Experiment, launcher: Launcher, progress: Progress
) -> Run:
    """A run, with its spread where it is a training on the CPU that gave floats to its end.

    Args:
        run: as it was measured.
        name: of the run.
        experiment: with the run among its own.
        launcher: starts the ranks.
        progress: shows what the ranks do.

    Raises:
        LaunchError: ranks could not be started.
    """
    plan, place = experiment.runs[name], launcher.place_of(experiment.runs[name])
    has_ended = run.status in ("completed", "diverged") and "timed" in run.passes
    is_training = has_ended and run.nature == "real" and not (plan.own_network or plan.follows)
    if place.device != "cpu" or not is_training:
        return run
    if not any(isinstance(value, float) for value in leaves(run).values()):
        return run
    others = []
    for words, variables in INSTRUCTION_SETS.items():
        watch = progress.watcher(name, f"timed, {words} instructions")
        launcher.instructions = variables
        try:
            result = launcher.run_pass(experiment, name, "timed", watch)
        finally:
            launcher.instructions = {}
        others.append(gather(plan, {"timed": result}, place, oversubscribed=False))
    return run.model_copy(update={"spread": spread_of(run, others)})
