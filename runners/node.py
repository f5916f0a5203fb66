"""Ranks over several nodes: the same experiment files, started by torchrun on each node.

    torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29400 \
        -m runners.node EXPERIMENT.RUN … [--full]

torchrun starts one such process a rank. It forks the rank, as the launcher on one machine does,
pass by pass, so passes share nothing here either (`torchrun.py`). `EXPERIMENT` without a run means
all its runs of as many ranks as torchrun started, and those of one rank, which rank 0's node
measures. Where a node has several interfaces, `GLOO_SOCKET_IFNAME` or `NCCL_SOCKET_IFNAME` says
which one.

Out: a trace in a folder of the nodes' own name, written by rank 0. What was measured there before
by the same code is kept; what was not asked for, or takes another number of ranks, is skipped in it
with the reason.

Exit codes as those of `python -m runners`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch._C._distributed_c10d import Store

from runners import machine
from runners.due import needs_full
from runners.experiment import Experiment, RunPlan, find, on_device
from runners.forkserver import LaunchError
from runners.gather import skipped
from runners.launch import Launcher
from runners.measure import BusyError, alone, code_of, measure_run, now, trace_of
from runners.torchrun import NodeError, NodeLauncher, Place
from runners.trace import Machine, Run, TraceError, read, source_digest, write, write_machine
from runners.tried import how_it_ended


@dataclass(frozen=True)
class Nodes:
    """What measures on all nodes together: this process's place, its launcher, and the store."""

    place: Place
    store: Store
    launcher: NodeLauncher

    def refusal(self, plan: RunPlan, *, full: bool, name: str) -> str | None:
        """Why a run cannot be measured on these nodes; None where it can."""
        num_ranks = self.place.world_size
        if plan.full and not full:
            return needs_full(name)
        if plan.own_network:
            return "its ranks need links of their own making, and nodes speak over theirs"
        if plan.world_size not in (1, num_ranks):
            return f"it takes {plan.world_size} ranks, and {num_ranks} were started on these nodes"
        if plan.follows is not None:
            return "it follows another run's times, which are known on one machine only"
        return None

    def measured(self, experiment: Experiment, name: str) -> Run:
        """One run on all nodes; of a single rank, on rank 0's node, while the others wait."""
        plan = experiment.runs[name]
        key = f"done/{experiment.name}.{name}"
        if plan.world_size > 1:
            run = measure_run(self.launcher, experiment, name)
            crowded = self.launcher.device_of(plan) == "cpu"
            crowded = crowded and self.place.num_local > machine.num_cores()
            timing = run.timing.model_copy(update={"oversubscribed": crowded})
            return run.model_copy(update={"timing": timing})
        if self.place.rank == 0:
            with Launcher(self.launcher.device) as launcher:
                run = measure_run(launcher, experiment, name)
            self.store.set(key, run.model_dump_json())
        return Run.model_validate_json(self.store.get(key))

    def described(self) -> Machine | None:
        """All nodes as one machine, named after how many of which kind; known to rank 0 only."""
        facts = {
            "cpu": machine.cpu_name(),
            "num_cores": machine.num_cores(),
            "memory_bytes": machine.memory_bytes(),
        }
        self.store.set(f"node/{self.place.rank}", json.dumps(facts))
        if self.place.rank:
            return None
        nodes = [json.loads(self.store.get(f"node/{r}")) for r in range(self.place.world_size)]
        here = machine.describe()
        return here.model_copy(
            update={
                "name": f"{self.place.num_nodes}-nodes-{here.name}",
                "cpu": " and ".join(sorted({node["cpu"] for node in nodes})),
                "num_cores": min(node["num_cores"] for node in nodes),
                "memory_bytes": min(node["memory_bytes"] for node in nodes),
                "system": f"{here.system}, {self.place.num_nodes} nodes",
            }
        )


def _on_nodes(experiment: Experiment, device: str) -> Experiment:
    """The experiment as nodes run it: their clocks do not agree, so nothing is drawn by time."""
    on = on_device(experiment, device)
    return replace(on, runs={n: replace(p, has_timeline=False) for n, p in on.runs.items()})


def _asked(wanted: Sequence[str]) -> dict[str, set[str] | None]:
    """Experiments, and of each the runs that are asked for; None for all.

    Raises:
        UnknownExperimentError: there is no such experiment.
        NodeError: it has no such run.
    """
    asked: dict[str, set[str] | None] = {}
    for name in wanted:
        experiment, _, run = name.partition(".")
        if run and run not in find(experiment).runs:
            known = ", ".join(find(experiment).runs)
            raise NodeError(f"{experiment} has no run {run!r}; it has: {known}")
        before = asked.get(experiment, set())
        asked[experiment] = {*before, run} if run and before is not None else None
    return asked


def _kept(path: Path, name: str) -> dict[str, Run]:
    """Runs that these nodes measured before, by the same code."""
    if not path.exists():
        return {}
    try:
        trace = read(path)
    except TraceError:
        return {}
    if trace.code.digest != source_digest(name):
        return {}
    return {n: r for n, r in trace.runs.items() if r.status != "skipped"}


def _measure(nodes: Nodes, name: str, runs: set[str] | None, *, full: bool) -> list[str]:
    """Measure what is asked of one experiment; on rank 0 write its trace. A line a surprise."""
    experiment = _on_nodes(find(name), nodes.launcher.device)
    code, since, here = code_of(name), now(), nodes.described()
    where = machine.TRACES / here.name if here is not None else None
    kept = _kept(where / f"{name}.json", name) if where is not None else {}
    results: dict[str, Run] = {}
    for run, plan in experiment.runs.items():
        refusal = nodes.refusal(plan, full=full, name=name)
        if runs is not None and run not in runs:
            refusal = refusal or f"not asked for: `-m runners.node {name}.{run}` measures it"
        if refusal is None:
            results[run] = nodes.measured(experiment, run)
            if here is not None:
                _say(f"{name}.{run}: {how_it_ended(results[run])}")
            continue
        launcher = nodes.launcher
        device, backend = launcher.device_of(plan), launcher.backend_of(plan)
        results[run] = kept.get(run) or skipped(plan, refusal, backend=backend, device=device)
    if here is not None and where is not None:
        write_machine(where, here)
        write(where / f"{name}.json", trace_of(experiment, code, here, results, since))
        _say(f"kept in {where / name}.json")
    return [f"{name}.{n}: {how_it_ended(r)}" for n, r in results.items() if r.is_surprise]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def _run(wanted: Sequence[str], *, full: bool) -> int:
    place = Place.told(os.environ)
    asked = _asked(wanted)
    store = place.store()
    launcher = NodeLauncher(place, store, machine.device_kind())
    surprises: list[str] = []
    with launcher:
        for name, runs in asked.items():
            surprises += _measure(Nodes(place, store, launcher), name, runs, full=full)
    for line in surprises if place.rank == 0 else ():
        sys.stderr.write(f"surprise: {line}\n")
    return 1 if surprises else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Be one process under torchrun; what a person can mend is one line and exit code 2."""
    parser = argparse.ArgumentParser(
        prog="torchrun … -m runners.node",
        description="Measure experiments with ranks on several nodes.",
    )
    parser.add_argument("names", nargs="+", metavar="EXPERIMENT[.RUN]")
    parser.add_argument("--full", action="store_true", help="heavier runs too")
    parsed = parser.parse_args(arguments)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _stop)
    try:
        if os.environ.get("RANK", "0") != "0":
            return _run(parsed.names, full=parsed.full)
        with alone():
            return _run(parsed.names, full=parsed.full)
    except KeyboardInterrupt:
        return 130
    except (ValueError, BusyError, LaunchError, OSError) as error:
        sys.stderr.write(f"python -m runners.node: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
