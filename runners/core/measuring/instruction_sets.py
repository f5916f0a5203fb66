"""How far a processor's instruction sets turn a training: it once more, under each of two.

In: a run of the reference machine, just measured. Out: the run with its `spread`, by which the
values of another processor are judged (`traces/tolerance.py`). No time of these passes is kept.
"""

from runners.core.declared.experiment import Experiment
from runners.core.measuring.gather import gather
from runners.core.measuring.launch import Launcher
from runners.core.trace.records import Run
from runners.core.trace.spread import leaves, spread_of
from runners.session.progress import Progress

# Of torch's own kernels, MKL and oneDNN. Under each, sums round otherwise than where a processor
# chooses for itself, AMD's or Intel's: on AMD's, MKL gives with AVX2 what it gives unasked.
VARIABLES = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA")
INSTRUCTION_SETS = (("default", "COMPATIBLE", "SSE41"), ("avx2", "COMPATIBLE", "AVX2"))


def with_spread(
    run: Run, name: str, experiment: Experiment, launcher: Launcher, progress: Progress
) -> Run:
    """A run, with its spread where it is a training on the CPU that gave floats to its end."""
    declaration, place = experiment.runs[name], launcher.place_of(experiment.runs[name])
    has_ended = run.status in ("completed", "diverged") and "timed" in run.passes
    is_of_times = run.nature != "real" or declaration.own_network or declaration.follows
    has_floats = any(isinstance(value, float) for value in leaves(run).values())
    if place.device != "cpu" or is_of_times or not (has_ended and has_floats):
        return run
    others = []
    for values in INSTRUCTION_SETS:
        watch = progress.watcher(name, f"timed, {values[0]} instructions")
        launcher.instructions = dict(zip(VARIABLES, values, strict=True))
        try:
            result = launcher.run_pass(experiment, name, "timed", watch)
        finally:
            launcher.instructions = {}
        others.append(gather(declaration, {"timed": result}, place, oversubscribed=False))
    return run.model_copy(update={"spread": spread_of(run, others)})
