"""Measure an experiment without ranks: each run in a process of its own, all into one trace.

In: the experiment. Out: a `Trace` on disk, written whole. The first machine that measures a
book of one's own is its reference machine; another one measures into a folder of its own.
"""

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from runners.core.declared.experiment import Experiment
from runners.core.trace import machine
from runners.core.trace.measured import SampledSeconds, Timing
from runners.core.trace.outcome import RankOutcome
from runners.core.trace.records import Circumstances, Code, Failure, Machine, RankRecord, Run, Trace
from runners.core.trace.schema import now
from runners.plain.experiment import Plain
from runners.plain.process import PHASE
from runners.session.progress import Progress
from runners.system.book import own_book
from runners.system.errors import FixableError
from runners.traces.digest import source_digest
from runners.traces.files import TraceError, machine_folders, read_machine, write
from runners.traces.plain import NO_TORCH, PASS

_SAME = ("cpu", "caches", "num_cores")  # of one machine


def described(name: str) -> Machine:
    """This machine, as an experiment without ranks sees it."""
    return Machine(
        schema_version=1, name=name, is_reference=name.startswith("reference-"),
        cpu=machine.cpu_name(), num_cores=machine.num_cores(), caches=machine.caches(),
        memory_bytes=machine.memory_bytes(), system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(), torch=NO_TORCH, accelerators=machine.accelerators(),
    )  # fmt: skip


def is_reference() -> bool:
    """Whether this machine is the reference of a book of one's own, or the first to measure it."""
    if not own_book():
        return False
    known = [name for name in machine_folders(machine.TRACES) if name.startswith("reference-")]
    if not known:
        return not machine_folders(machine.TRACES)
    try:
        there, here = read_machine(machine.TRACES / known[0]), described(known[0])
    except TraceError:  # somebody edited it, and is told to measure again
        return True
    return all(getattr(there, name) == getattr(here, name) for name in _SAME)


def measure(experiment: Experiment, where: Path, progress: Progress) -> Trace:
    """Measure all runs of an experiment and write their trace into a machine's folder.

    Raises:
        FixableError: a run of it is not declared as `Plain`.
        OSError: the disk refused.
    """
    digest = source_digest(experiment.name)  # before it runs: an edit meanwhile makes it stale
    progress.begin(experiment)
    runs = {}
    for name in experiment.runs:
        runs[name] = measure_run(experiment, name)
        progress.ended(name, runs[name])
    write(where / "machine.json", described(where.name))
    trace = trace_of(experiment, where.name, runs, digest)
    write(where / f"{experiment.name}.json", trace)
    return trace


def trace_of(
    experiment: Experiment, machine_name: str, runs: Mapping[str, Run], digest: str = ""
) -> Trace:
    """A trace of these runs, as of now."""
    return Trace(
        schema_version=2, experiment=experiment.name, question=experiment.question,
        recorded_at=now(), machine=machine_name, runs=dict(runs),
        code=Code(digest=digest or source_digest(experiment.name)),
        circumstances=Circumstances(python=platform.python_version(), torch=NO_TORCH),
    )  # fmt: skip


def measure_run(experiment: Experiment, name: str) -> Run:
    """One run, to its end.

    Raises:
        FixableError: it is not declared as `Plain`.
    """
    declared = experiment.runs[name]
    if not isinstance(declared, Plain):
        raise FixableError(
            f"{experiment.path}: run {name!r} is declared for ranks; experiments with "
            "runners.plain declare every run as Plain(…)"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "outcome.json")
        # Without the current folder on the path, where a book may have a folder called `runners`.
        words = [sys.executable, "-P", "-m", "runners.plain.process", experiment.name, name]
        begin = time.perf_counter()
        done = subprocess.run(
            [*words, file, str(declared.seed)],
            cwd=experiment.path.parent.parent, input=json.dumps(declared.settings.declared()),
            capture_output=True, encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip
        seconds = time.perf_counter() - begin
        if os.environ.get("PROOFBOOK_STDERR"):  # of a person who debugs
            sys.stderr.write(done.stderr)
        if file.exists():
            outcome = RankOutcome.model_validate_json(file.read_text(encoding="utf-8"))
        else:
            outcome = RankOutcome(rank=0, status="died", failure=_death(done))
    return Run(
        strategy=declared.strategy, world_size=1, backend="gloo", device="cpu", seed=declared.seed,
        settings=declared.settings.as_json(), expected_status=declared.expected,
        expected_death=declared.expected_death, status=outcome.status, error=outcome.failure,
        passes=[PASS], label=declared.label, quantities=outcome.quantities,
        ranks=[RankRecord(**{one: getattr(outcome, one) for one in RankRecord.model_fields})],
        printed=done.stdout.splitlines(),
        timing=Timing(
            wall_seconds=round(seconds, 3),
            measures={n: SampledSeconds.of(s) for n, s in outcome.measured_seconds.items() if s},
        ),
    )  # fmt: skip


def _death(done: subprocess.CompletedProcess[str]) -> Failure:
    """Why a process left no outcome."""
    by_signal = signal.Signals(-done.returncode).name if done.returncode < 0 else None
    last = done.stderr.strip().splitlines()[-1:]
    return Failure(
        kind="signal" if by_signal else "exception",
        message=": ".join([by_signal or f"exit code {done.returncode}", *last]),
        phase=PHASE, rank=0, signal=by_signal, exit_code=None if by_signal else done.returncode,
    )  # fmt: skip
