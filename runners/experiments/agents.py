"""Two nodes on one machine, an agent of torchrun each: what agents do when something fails.

Recorded are the sizes of the group, and the error that ended each agent or rank without one.

    python -m runners run agents

Each worker is this file too, started by an agent (`main`).
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from datetime import timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, get_args

import torch
import torch.distributed as dist

from proofbook.runners.api import Declaration, RunSettings
from proofbook.runners.training.rank import Rank, end_with

JOIN_SECONDS = 15  # how long an agent, or a rank, waits for the others
WAITS = f"last_call_timeout=3,join_timeout={JOIN_SECONDS},keep_alive_interval=1"


def main() -> None:
    """Be a worker: at first till something dies or joins, after that for a barrier."""
    folder, case = Path(sys.argv[1]), sys.argv[2]
    end_with(agent := os.getppid())
    dist.init_process_group("gloo", timeout=timedelta(seconds=2 * JOIN_SECONDS))
    rank, size, sign = dist.get_rank(), dist.get_world_size(), folder / "killed"
    (folder / f"joined-{time.monotonic_ns():020}-{size}-{rank}").touch()
    is_first = size == 1 if case.startswith("node_joins") else not sign.exists()
    dist.barrier()
    if is_first and rank == 1:
        sign.touch()
        os.kill(agent if case == "node_killed" else os.getpid(), signal.SIGKILL)
    while is_first:
        dist.all_reduce(torch.ones(1))
        time.sleep(0.05)
    dist.barrier()
    # A rank that left before another has come out of the barrier would end that one's connection.
    (folder / f"done-{rank}").touch()
    while len([*folder.glob("done-*")]) < size:
        time.sleep(0.01)
    os._exit(0)


def agents(rank: Rank[Settings]) -> None:
    """Run two agents, or two ranks alone, till both have ended; record sizes and errors."""
    folder, case = rank.scratch / "agents", rank.settings.case
    folder.mkdir()
    port, processes = _free_port(), []
    for node in range(2):
        if case in ("never_met", "port_wrong"):
            port = _free_port()
        while node and case.startswith("node_joins") and not any(folder.glob("joined-*")):
            rank.beat()
            time.sleep(0.1)
        arguments = (folder, case, node, port)
        processes.append(get_context("fork").Process(target=_until_error, args=arguments))
        processes[-1].start()
        time.sleep(0.5)  # the first one is the host
    with rank.phase("agents"):
        while any(process.is_alive() for process in processes):
            rank.beat()
            time.sleep(0.1)
    sizes = [int(path.name.split("-")[2]) for path in sorted(folder.glob("joined-*-0"))]
    rank.measure("group_sizes", sizes)
    errors = [folder / f"error-{node}" for node in range(2)]
    rank.measure("errors", [path.read_text() if path.exists() else "killed" for path in errors])


def _until_error(folder: Path, case: str, node: int, port: int) -> None:
    """Be an agent or a rank alone, and note the class of the error with which it ends."""
    end_with(os.getppid())
    error = "none"
    try:
        if case.startswith("port"):
            address, place = f"tcp://127.0.0.1:{port}", 0 if case == "port_taken" else node
            wait = timedelta(seconds=JOIN_SECONDS / 3)
            dist.init_process_group("gloo", address, wait, world_size=2, rank=place)
        else:
            _agent(folder, case, node, port)
    except Exception as raised:  # noqa: BLE001 whatever torch raises is what is recorded
        error = type(raised).__name__
    (folder / f"error-{node}").write_text(error)
    os._exit(0)


def _agent(folder: Path, case: str, node: int, port: int) -> None:
    from torch.distributed.run import main as torchrun

    if case != "node_joins":  # a store that rounds share has addresses of workers that are gone
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    allows_none = case.startswith("node_joins") or (case == "gives_up" and node == 1)
    options = f"""--nnodes={"1:2" if case.startswith("node") else "2"} --nproc-per-node=1
        --max-restarts={0 if allows_none else 3} --monitor-interval=0.05
        --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{port} --rdzv-conf={WAITS}
        --log-dir={folder / f"log-{node}"} --redirects=3
        --module proofbook.runners.experiments.agents"""
    torchrun([*options.split(), str(folder), case])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


QUESTION = "What do torchrun's agents do when a worker, a node or an address fails?"
Case = Literal[
    "worker_killed", "node_killed", "node_joins", "node_joins_unshared",
    "gives_up", "never_met", "port_wrong", "port_taken",
]  # fmt: skip


class Settings(RunSettings):
    """What fails."""

    case: Case


LIGHT = "port_taken"  # the others wait for agents, two minutes in all
launched = partial(Declaration, "agents", 1, passes=("timed",), only_on_cpu=True)
RUNS = {case: launched(Settings(case=case), full=case != LIGHT) for case in get_args(Case)}

if __name__ == "__main__":
    main()
