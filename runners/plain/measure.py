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
from pathlib import Path

from proofbook.runners.core.declared.experiment import Experiment
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.measured import SampledSeconds, Timing
from proofbook.runners.core.trace.outcome import RankOutcome
from proofbook.runners.core.trace.records import (
    NO_TORCH,
    PLAIN_PASS,
    Circumstances,
    Code,
    Failure,
    RankRecord,
    Run,
    Trace,
    trace_of,
)
from proofbook.runners.plain.experiment import Plain
from proofbook.runners.plain.process import PHASE
from proofbook.runners.session.progress import Progress
from proofbook.runners.system.book import own_book
from proofbook.runners.system.errors import FixableError
from proofbook.runners.traces.digest import source_digest
from proofbook.runners.traces.files import TraceError, read_machine, write

_SAME = ("cpu", "caches", "num_cores")  # of one machine


def is_reference() -> bool:
    """Whether an own book's reference has this machine's CPU and caches, or no trace exists."""
    if not own_book():
        return False
    folders = machine.machine_folders(machine.TRACES)
    reference = next((name for name in folders if name.startswith("reference-")), None)
    if reference is None:
        return not folders
    try:
        there = read_machine(machine.TRACES / reference)
    except TraceError:  # somebody edited it, and is told to measure again
        return True
    here = machine.describe(reference, NO_TORCH)
    return all(getattr(there, name) == getattr(here, name) for name in _SAME)


def measure(experiment: Experiment, where: Path, progress: Progress) -> Trace:
    """Measure all runs of an experiment; their `Trace`, written with `machine.json` into a folder.

    FixableError where a run of it is not declared as `Plain`; OSError where the disk refuses.
    """
    digest = source_digest(experiment.name)  # before it runs: an edit meanwhile makes it stale
    progress.begin(experiment)
    runs = {}
    for name in experiment.runs:
        runs[name] = measure_run(experiment, name)
        progress.ended(name, runs[name])
    write(where / "machine.json", machine.describe(where.name, NO_TORCH))
    trace = _trace_of(experiment, digest, where.name, runs)
    write(where / f"{experiment.name}.json", trace)
    return trace


def measure_alone(experiment: Experiment, name: str) -> Trace:
    """Measure the one run of a try; its trace, which nothing has written yet."""
    runs = {name: measure_run(experiment, name)}
    return _trace_of(experiment, source_digest(experiment.name), machine.name(), runs)


def _trace_of(experiment: Experiment, digest: str, folder: str, runs: dict[str, Run]) -> Trace:
    under = Circumstances(python=platform.python_version(), torch=NO_TORCH)
    code = Code(digest=digest)
    return trace_of(experiment.name, experiment.question, code, under, folder, runs)


def measure_run(experiment: Experiment, name: str) -> Run:
    """A `Run`, also if it died: in a process of its own; FixableError if it is not `Plain`."""
    declared = experiment.runs[name]
    if not isinstance(declared, Plain):
        raise FixableError(
            f"{experiment.path}: run {name!r} is declared for ranks; experiments with "
            "proofbook.runners.plain declare every run as Plain(…)"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "outcome.json")
        # Without the current folder on the path, where a book may have a folder called `runners`.
        words = [
            sys.executable,
            "-P",
            "-m",
            "proofbook.runners.plain.process",
            experiment.name,
            name,
        ]
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
        passes=[PLAIN_PASS], label=declared.label, quantities=outcome.quantities,
        ranks=[RankRecord(**{name: getattr(outcome, name) for name in RankRecord.model_fields})],
        printed=done.stdout.splitlines(),
        timing=Timing(
            wall_seconds=round(seconds, 3),
            measures={n: SampledSeconds.of(s) for n, s in outcome.measured_seconds.items() if s},
        ),
    )  # fmt: skip


def _death(done: subprocess.CompletedProcess[str]) -> Failure:
    """The failure of a process that left no outcome."""
    by_signal = signal.Signals(-done.returncode).name if done.returncode < 0 else None
    last = done.stderr.strip().splitlines()[-1:]
    return Failure(
        kind="signal" if by_signal else "exception",
        message=": ".join([by_signal or f"exit code {done.returncode}", *last]),
        phase=PHASE, rank=0, signal=by_signal, exit_code=None if by_signal else done.returncode,
    )  # fmt: skip
