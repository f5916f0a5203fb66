"""The same experiment files over several nodes, started by torchrun on each of them.

    torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29400 \
        -m runners.cluster EXPERIMENT[.RUN] …

torchrun starts this module once a rank. `EXPERIMENT` without a run means all its runs of as many
ranks as torchrun started, and those of one rank, which rank 0's node measures. Ranks use the
interface on which this node reaches the others, unless `GLOO_SOCKET_IFNAME` or `NCCL_SOCKET_IFNAME`
names one.

Out: a trace in a folder of the nodes' own name, written by rank 0. What was measured there before
by the same code is kept; what was not named, or takes another number of ranks, is skipped in it
with the reason. When a node, its link, its torchrun or one of its ranks is lost, every process says
which and ends (`peers.py`). A run that was lost is not evidence: the trace stays as it was, and the
runs that had ended wait in `.<experiment>.part` for the next start.

Exit codes: 0 every run ended as declared, 1 a surprise, 2 a wrong call, 3 a node was lost; stopped
by Ctrl-C 130, by SIGTERM 143, by SIGHUP 129. torchrun makes each of them but 0 a 1.
"""

from proofbook.runners.core.system import accelerator
from proofbook.runners.system import stopping

if __name__ == "__main__":  # before torch is loaded
    stopping.listen("stopped; what was measured before is kept")

import argparse
import os
import sys
import time
from collections.abc import Sequence
from importlib import metadata

# Read when torch is loaded. Each process says itself why it ends, without a stack of C++.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

from torch.distributed import DistError

from proofbook.runners.core.declared.experiment import Declaration, find, runs_named
from proofbook.runners.core.measuring.endings import UnfinishedError
from proofbook.runners.core.measuring.launcher import NodeLauncher
from proofbook.runners.core.measuring.measure import alone, measure
from proofbook.runners.core.system.links import interface_of
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.records import Machine
from proofbook.runners.session.peers import Peers, Worker, explain
from proofbook.runners.session.pending import pending
from proofbook.runners.session.progress import Progress
from proofbook.runners.system.errors import LaunchError
from proofbook.runners.system.progress_lines import say
from proofbook.runners.traces.digest import program_digests, source_digest
from proofbook.runners.traces.summary import how_it_ended

REASON_SECONDS = 1.0  # torchrun stops its processes when it notices a loss that they hear of, too


def _described(peers: Peers) -> Machine:
    """All nodes as one machine, as many of rank 0's; ValueError where their ranks would differ."""
    for rank, facts in enumerate(peers.facts):
        if facts["software"] != peers.facts[0]["software"]:
            raise ValueError(
                f"{peers.name(rank)} has other code, or another torch, than {peers.name(0)}; "
                "bring the same commit and environment to all nodes"
            )
        if facts["accelerators"] != peers.facts[0]["accelerators"]:  # by which each chooses NCCL
            raise ValueError(
                f"the ranks of {peers.name(rank)} get {facts['accelerators']} accelerators, those "
                f"of {peers.name(0)} {peers.facts[0]['accelerators']}; start no more ranks a node "
                "than each has, or set PROOFBOOK_DEVICE=cpu on all nodes"
            )
    here, num_nodes = machine.describe(), peers.worker.num_nodes
    name, system = f"{num_nodes}-nodes-{here.name}", f"{here.system}, {num_nodes} nodes"
    return here.model_copy(update={"name": name, "system": system})


def _refusal(
    name: str, run: str, declaration: Declaration, num_ranks: int, named: list[str]
) -> str | None:
    """Why a run is not measured on these nodes; None where it is."""
    if declaration.own_network:
        return "its ranks need links of their own, and nodes communicate over theirs"
    if declaration.world_size not in (1, num_ranks):
        return (
            f"it takes {declaration.world_size} ranks, and {num_ranks} were started on these nodes"
        )
    if declaration.follows is not None:
        return "it follows another run's times, which are known on one machine only"
    if run not in named:
        return f"not named: `-m runners.cluster {name}.{run}` measures it"
    return None


def _lead(peers: Peers, launcher: NodeLauncher, wanted: dict[str, list[str]]) -> int:
    """Measure on all nodes and write the traces, as rank 0's process; the exit code."""
    surprises = []
    with alone():
        here, progress = _described(peers), Progress()
        where, num_ranks = machine.TRACES / here.name, peers.worker.world_size
        for name, named in wanted.items():
            experiment = find(name)
            refused = {
                run: why
                for run, declaration in experiment.runs.items()
                if (why := _refusal(name, run, declaration, num_ranks, named))
            }
            waiting = pending(name, where, full=True, loaded=experiment, refused=refused)
            for run in sorted(refused.keys() & named):
                say(f"{name}.{run}: {refused[run]}")
            if waiting is None:
                say(f"{name}: nothing is left to measure")
                continue
            trace = measure(waiting, launcher, progress, here=here)
            say(f"kept in {where / name}.json")
            surprises += [
                f"{name}.{run}: {how_it_ended(measured)}"
                for run, measured in trace.runs.items()
                if measured.is_surprise
            ]
    for line in surprises:
        explain(f"surprise: {line}")
    launcher.finish(1 if surprises else 0)
    return 1 if surprises else 0


def _together(peers: Peers, wanted: dict[str, list[str]]) -> int:
    """Measure with the other processes, and tell them what ends this one early; the exit code."""
    worker = peers.worker
    here = peers.name(worker.rank)
    try:
        if leading := interface_of(peers.address):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", leading)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", leading)
        interface = os.environ.get("GLOO_SOCKET_IFNAME", "the interface of its host name")
        say(f"{here}: one of {worker.num_nodes}, connected over {interface}, {peers.address}")
        launcher = NodeLauncher(peers, accelerator.kind())
        with launcher:
            code = launcher.serve() if worker.rank else _lead(peers, launcher, wanted)
        peers.leave()
    except stopping.Stopped as stopped:
        time.sleep(REASON_SECONDS)
        peers.lose(f"{here} was {stopped}; what its torchrun prints says why", stopped.exit_code)
    except DistError:
        time.sleep(REASON_SECONDS)
        peers.lose(f"torchrun's store at {worker.host}:{worker.port} does not answer {here}")
    except (UnfinishedError, LaunchError) as error:
        peers.lose(f"{here} ended: {error}")
    except (ValueError, OSError) as error:
        peers.lose(f"{here} ended: {error}", 2)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the named runs, as one of torchrun's processes; the exit code, 2 for a wrong call."""
    parser = argparse.ArgumentParser(
        prog="torchrun … -m runners.cluster",
        description="Measure experiments with ranks on several nodes.",
    )
    parser.add_argument("names", nargs="+", metavar="EXPERIMENT[.RUN]")
    names = parser.parse_args(arguments).names
    try:
        wanted, worker = runs_named(names), Worker.of(os.environ)
        code = [[source_digest(name), program_digests(name)] for name in wanted]
        used = min(accelerator.num_devices(), worker.num_local)
        software = [metadata.version("torch"), code]
        peers = Peers(worker, {"software": software, "accelerators": used})
    except stopping.Stopped as stopped:
        return stopping.report(stopped)
    except (ValueError, OSError, DistError) as error:
        explain(f"python -m runners.cluster: {error}")
        return 2
    return _together(peers, wanted)


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    os._exit(exit_code)  # all is cleaned up, and to unload torch takes seconds on a busy machine
