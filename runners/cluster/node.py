"""Ranks over several nodes: the same experiment files, started by torchrun on each node.

    python -m runners.cluster --nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29400 \
        EXPERIMENT.RUN … [--full]

`python -m runners.cluster` is torchrun with a word for each wait; `torchrun … -m
runners.cluster.node EXPERIMENT.RUN` does the same without. torchrun starts one such process a rank.
It forks the rank, as the launcher on one machine does, pass by pass, so passes share nothing here
either (`torchrun.py`). `EXPERIMENT` without a run means all its runs of as many ranks as torchrun
started, and those of one rank, which rank 0's node measures. Ranks use the interface on which this
node reaches the others, unless `GLOO_SOCKET_IFNAME` or `NCCL_SOCKET_IFNAME` names one.

Out: a trace in a folder of the nodes' own name, written by rank 0. What was measured there before
by the same code is kept; what was not asked for, or takes another number of ranks, is skipped in it
with the reason.

When a node, its link, its torchrun or one of its ranks is lost, every process says which and ends
(`peers.py`). A run that was lost is not evidence: the trace stays as it was, and the runs that had
ended wait in `.<experiment>.part` for the next start.

Exit codes: 0 every run ended as declared, 1 a surprise, 2 a wrong call, 3 a node was lost, 130
stopped by a signal. `torchrun` itself turns each of them but 0 into 1; `runners.cluster` does not.
"""

from __future__ import annotations

from runners.system import stopping, streams

if __name__ == "__main__":
    stopping.listen("stopped; what was measured before is kept")  # before torch is loaded

import argparse
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from runners.cluster.peers import NodeLostError, Peers, say
from runners.cluster.torchrun import NodeError, NodeLauncher, Place
from runners.measuring.gather import skipped
from runners.measuring.launch import Launcher
from runners.measuring.measure import BusyError, alone, code_of, measure_run, now, trace_of
from runners.measuring.not_measured import NotMeasuredError
from runners.measuring.pending import part_of, staleness
from runners.plans.experiment import Experiment, RunPlan, find, on_device
from runners.system.errors import LaunchError
from runners.system.links import interface_of
from runners.traces import machine
from runners.traces.digest import program_digests, source_digest
from runners.traces.files import TraceError, read, read_part, write, write_machine, write_part
from runners.traces.machine_records import Machine
from runners.traces.records import Run, Trace
from runners.traces.skips import needs_full
from runners.traces.summary import how_it_ended
from runners.traces.values import edited, list_values

LOST, STOPPED = 3, 130  # exit codes: a node was lost; a signal stopped this process
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOSS = signal.SIGUSR1  # how the watch over the connections interrupts the main thread


@dataclass(frozen=True)
class Nodes:
    """What measures on all nodes together: this process's place, the others, and its launcher."""

    place: Place
    peers: Peers
    launcher: NodeLauncher

    def refusal(
        self, plan: RunPlan, runs: set[str] | None, *, full: bool, experiment: str, name: str
    ) -> str | None:
        """Why a run is not measured on these nodes; None where it is."""
        num_ranks = self.place.world_size
        if plan.full and not full:
            return needs_full(experiment)
        if plan.own_network:
            return "its ranks need links of their own making, and nodes speak over theirs"
        if plan.world_size not in (1, num_ranks):
            return f"it takes {plan.world_size} ranks, and {num_ranks} were started on these nodes"
        if plan.follows is not None:
            return "it follows another run's times, which are known on one machine only"
        if runs is not None and name not in runs:
            return f"not asked for: `-m runners.cluster.node {experiment}.{name}` measures it"
        return None

    def skipped(self, plan: RunPlan, reason: str | None) -> Run:
        """A run that is not measured here; without a reason rank 0 has it already."""
        device, backend = self.launcher.device_of(plan), self.launcher.backend_of(plan)
        return skipped(plan, reason or "kept by rank 0", backend=backend, device=device)

    def measured(self, experiment: Experiment, name: str) -> Run:
        """One run on all nodes; of a single rank, on rank 0's node, while the others wait.

        Raises:
            NodeLostError: one of its ranks, or its connection, was lost.
        """
        plan = experiment.runs[name]
        if plan.world_size > 1:
            run = self._measured(self.launcher, experiment, name)
            device = self.launcher.device_of(plan)
            crowded = self.place.num_local > machine.num_places(device)
            timing = run.timing.model_copy(update={"oversubscribed": crowded})
            run = run.model_copy(update={"timing": timing})
        else:
            run = self._measured_alone(experiment, name)
        if run.is_surprise and run.error is not None and _is_lost(run):
            _disarm()
            where = self.peers.name(run.error.rank or 0)
            raise self.peers.give_up(
                f"{experiment.name}.{name} is lost: {where}: {run.error.message}"
            )
        return run

    def _measured_alone(self, experiment: Experiment, name: str) -> Run:
        told = None
        if self.place.rank == 0:
            with Launcher(self.launcher.device) as launcher:
                told = self._measured(launcher, experiment, name).model_dump(mode="json")
        told = self.peers.gather(f"the end of {experiment.name}.{name}", told)[0]
        return Run.model_validate_json(json.dumps(told))

    def _measured(self, launcher: Launcher, experiment: Experiment, name: str) -> Run:
        try:
            return measure_run(launcher, experiment, name)
        except NotMeasuredError as error:
            _disarm()
            raise self.peers.give_up(f"{experiment.name}.{name} is lost: {error}") from None

    def described(self, name: str) -> Machine | None:
        """All nodes as one machine, named after how many of which kind; known to rank 0 only.

        Raises:
            NodeError: the nodes do not run the same code of this experiment, or the same torch.
        """
        facts = {
            "cpu": machine.cpu_name(),
            "num_cores": machine.num_cores(),
            "memory_bytes": machine.memory_bytes(),
            "software": [source_digest(name), program_digests(name), metadata.version("torch")],
        }
        nodes = self.peers.gather(f"the start of {name}", facts)
        for rank, node in enumerate(nodes):
            if node["software"] != nodes[0]["software"]:
                raise NodeError(
                    f"{self.peers.name(rank)} has other code, or another torch, than "
                    f"{self.peers.name(0)}; bring the same commit and environment to all nodes"
                )
        if self.place.rank:
            return None
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


def _is_lost(run: Run) -> bool:
    """Whether a run that surprised ended for want of a node: a rank died, or lost its peers."""
    assert run.error is not None
    return run.status == "died" or run.error.kind == "peer_lost"


def _on_nodes(experiment: Experiment, device: str) -> Experiment:
    """The experiment as nodes run it: their clocks do not agree, so nothing is drawn by time."""
    on = on_device(experiment, device)
    return replace(on, runs={n: replace(p, has_timeline=False) for n, p in on.runs.items()})


def runs_named(wanted: Sequence[str]) -> dict[str, set[str] | None]:
    """Experiments, and of each the runs that are asked for; None for all.

    Raises:
        UnknownExperimentError: there is no such experiment.
        NodeError: it has no such run.
    """
    asked: dict[str, set[str] | None] = {}
    for name in wanted:
        experiment, _, run = name.partition(".")
        runs = find(experiment).runs
        if run and run not in runs:
            known = ", ".join(runs)
            raise NodeError(f"{experiment} has no run {run!r}; it has: {known}")
        before = asked.get(experiment, set())
        asked[experiment] = {*before, run} if run and before is not None else None
    return asked


def _kept(path: Path, read_it: Callable[[Path], Trace] = read) -> dict[str, Run]:
    """Runs that these nodes measured before, by the same code and the same torch."""
    try:
        trace = read_it(path) if path.exists() else None
    except TraceError:
        return {}
    is_edited = path.suffix == ".json" and edited(path) is not None
    if trace is None or is_edited or staleness(trace) is not None:
        return {}
    return {n: r for n, r in trace.runs.items() if r.status != "skipped"}


def _measure(nodes: Nodes, name: str, runs: set[str] | None, *, full: bool) -> list[str]:
    """Measure what is asked of one experiment; on rank 0 write its trace. A line a surprise."""
    experiment = _on_nodes(find(name), nodes.launcher.device)
    code, since, here = code_of(name), now(), nodes.described(name)
    where = machine.TRACES / here.name if here is not None else None
    # What had ended when the start before this one lost a node or was stopped.
    ended = _kept(part_of(name, where), read_part) if where is not None else {}
    kept = _kept(where / f"{name}.json") | ended if where is not None else {}
    # Only rank 0 knows what an earlier start left; no process may measure what another keeps.
    already = nodes.peers.gather(f"what an earlier start left of {name}", sorted(ended))[0]
    results: dict[str, Run] = {}
    for run, plan in experiment.runs.items():
        refusal = nodes.refusal(plan, runs, full=full, experiment=name, name=run)
        if refusal is not None or run in already:
            results[run] = kept.get(run) or nodes.skipped(plan, refusal)
            if here is not None and (run in already or run in (runs or ())):
                _say(f"{name}.{run}: {refusal or 'kept from the start before'}")
            continue
        results[run] = nodes.measured(experiment, run)
        if here is not None and where is not None:
            _say(f"{name}.{run}: {how_it_ended(results[run])}")
            so_far = {**ended, **results}
            write_part(part_of(name, where), trace_of(experiment, code, here, so_far, since))
    if here is not None and where is not None:
        write_machine(where, here)
        write(where / f"{name}.json", trace_of(experiment, code, here, results, since))
        list_values(where, name)
        part_of(name, where).unlink(missing_ok=True)
        _say(f"kept in {where / name}.json")
    return [f"{name}.{n}: {how_it_ended(r)}" for n, r in results.items() if r.is_surprise]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _disarm() -> None:
    """This process is about to end: no second signal may disturb how it cleans up.

    With SIG_IGN, Python would print a traceback for one that has come already and is not handled.
    """
    for number in (*ENDINGS, LOSS):
        signal.signal(number, lambda *_: None)


def _stop(number: int, _: object) -> None:
    _disarm()
    raise KeyboardInterrupt(signal.Signals(number).name)


def _lose(*_: object) -> None:
    _disarm()
    raise NodeLostError


def _interrupt(_: str) -> None:
    """Let the main thread hear, wherever it waits, that a node is lost; called from another."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, LOSS)


def _use_interface(address: str | None) -> str:
    """Let ranks use the interface on which this node reaches the others; which, in words.

    Raises:
        NodeError: the environment names an interface that this node has not.
    """
    found = interface_of(address) if address else None
    known = [name for _, name in socket.if_nameindex()]
    for variable in INTERFACES:
        if found is not None:
            os.environ.setdefault(variable, found)
        # Both take a list of prefixes, NCCL with = or ^ before it; only a plain name is checked.
        name = os.environ.get(variable, found or "")
        if name.isalnum() and not any(one.startswith(name) for one in known):
            raise NodeError(
                f"{variable}={name}, which {socket.gethostname()} does not have; leave it out, or "
                f"choose among {', '.join(known)}"
            )
    return os.environ.get("GLOO_SOCKET_IFNAME", "the interface of its host name")


def _run(peers: Peers, place: Place, asked: dict[str, set[str] | None], *, full: bool) -> int:
    interface = _use_interface(peers.address)
    if place.local == 0:
        where = f"{interface}, {peers.address}" if peers.address else interface
        say(f"{peers.name(place.rank)}: one of {place.num_nodes}, connected over {where}")
    surprises: list[str] = []
    launcher = NodeLauncher(place, peers, machine.device_kind())
    with launcher:
        for name, runs in asked.items():
            surprises += _measure(Nodes(place, peers, launcher), name, runs, full=full)
    peers.gather("the end of all runs", None)
    for line in surprises if place.rank == 0 else ():
        say(f"surprise: {line}")
    return 1 if surprises else 0


def _together(asked: dict[str, set[str] | None], *, full: bool) -> int:
    """Meet the other processes, measure, and leave; who leaves early tells the others why."""
    place = Place.told(os.environ)
    peers = Peers(place, place.store(), _interrupt)
    try:
        with alone() if place.rank == 0 else nullcontext():
            code = _run(peers, place, asked, full=full)
    except KeyboardInterrupt as error:
        # torchrun stops its processes when it notices a loss that they are about to hear of.
        was_lost = peers.wait_for_loss()
        peers.close(f"was stopped by {error}")
        if was_lost:
            raise NodeLostError from None
        raise
    except Exception as error:
        peers.close(f"ended: {error}" if str(error) else None)
        raise
    peers.close()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Be one process under torchrun; what a person can fix is one line and exit code 2."""
    parser = argparse.ArgumentParser(
        prog="torchrun … -m runners.cluster.node",
        description="Measure experiments with ranks on several nodes.",
    )
    parser.add_argument("names", nargs="+", metavar="EXPERIMENT[.RUN]")
    parser.add_argument("--full", action="store_true", help="heavier runs too")
    parsed = parser.parse_args(arguments)
    for ending in ENDINGS:
        signal.signal(ending, _stop)
    signal.signal(LOSS, _lose)
    try:
        return _together(runs_named(parsed.names), full=parsed.full)
    except KeyboardInterrupt:
        return STOPPED
    except (NodeLostError, LaunchError) as error:
        if str(error):
            say(f"python -m runners.cluster.node: {error}")
        return LOST
    except (ValueError, BusyError, OSError) as error:
        say(f"python -m runners.cluster.node: {error}")
        return 2


if __name__ == "__main__":
    exit_code = streams.report(main())
    os._exit(exit_code)  # all is cleaned up, and to unload torch takes seconds on a busy machine
