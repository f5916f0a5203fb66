"""Measure the primitives of this machine, as an experiment is measured.

Out: `primitives.json` in the machine's folder: computing with one, two and four ranks busy, an
all-reduce by bytes, and the few rates that a person asks for: of the products, α and β.
"""

from collections.abc import Mapping
from pathlib import Path

from runners.declared.experiment import PRIMITIVES, find
from runners.measuring.launch import Launcher
from runners.measuring.progress import Progress
from runners.system.errors import FixableError
from runners.traces import machine
from runners.traces.files import TraceError, read_primitives, write
from runners.traces.measured import SampledSeconds
from runners.traces.records import Primitives
from runners.traces.schema import now

ROWS, WIDTH = 512, 256  # of the layer whose products are timed
SMALL_BYTES, LARGE_BYTES = 4_096, 16_777_216  # of a call


def measure_once(launcher: Launcher, where: Path, progress: Progress) -> None:
    """Measure them where this machine has not, or where what it measured was cut or edited.

    Raises:
        LaunchError, OSError.
        FixableError: ranks failed; the message is theirs.
    """
    if is_measured(where):
        return
    taken = measured(launcher, progress)
    found = Primitives(
        schema_version=1,
        machine=where.name,
        recorded_at=now(),
        primitives={**taken, **summary(taken)},
    )
    write(where / "primitives.json", found)


def is_measured(where: Path) -> bool:
    """Whether a machine's folder holds primitives that can be read."""
    try:
        return read_primitives(where) is not None
    except TraceError:
        return False


def measured(launcher: Launcher, progress: Progress) -> dict[str, SampledSeconds]:
    """Measure all that means something here; errors as `measure_once` has them."""
    experiment = find(PRIMITIVES)
    places = machine.num_places(launcher.device)
    taken: dict[str, SampledSeconds] = {}
    progress.begin(experiment)
    for name, plan in experiment.runs.items():
        # Ranks that take turns on a core, or share an accelerator, say nothing of the machine.
        if plan.world_size > places and (plan.strategy == "compute" or launcher.device == "cuda"):
            continue
        result = launcher.run_pass(experiment, name, "timed", progress.watcher(name, "timed"))
        if result.root_cause is not None:
            why = result.not_measured or result.root_cause.message
            raise FixableError(f"{name}: {why}")
        seconds = result.outcomes[0].measured_seconds
        taken |= {known: SampledSeconds.of(samples) for known, samples in seconds.items()}
        progress.said(f"{name}: {len(seconds)} primitives in {result.seconds:.1f} s")
    return taken


def summary(taken: Mapping[str, SampledSeconds]) -> dict[str, float]:
    """The few rates that a person asks for: of one rank, of two, of four."""
    seconds = {name: one.median_seconds for name, one in taken.items()}
    found: dict[str, float] = {}
    if layer := seconds.get(f"matrix_{ROWS}x{WIDTH}_1_seconds"):
        found["matrix_flops_per_second"] = 6.0 * ROWS * WIDTH * WIDTH / layer
    for ranks in (2, 4):
        small = seconds.get(f"all_reduce_{ranks}_{SMALL_BYTES}_seconds")
        large = seconds.get(f"all_reduce_{ranks}_{LARGE_BYTES}_seconds")
        if small and large:
            beta = (large - small) / (LARGE_BYTES - SMALL_BYTES)
            found[f"all_reduce_{ranks}_alpha_seconds"] = small
            found[f"all_reduce_{ranks}_beta_seconds_per_byte"] = max(beta, 0.0)
    return found
