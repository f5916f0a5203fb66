"""The body of a rank's process: set up, warm up, limit, run the strategy, record, leave.

In: a request (which experiment, run, pass and rank, and where to write). Out: a `RankOutcome`, as
whole JSON, before the process leaves by `os._exit`; a failing rank then waits to be ended, so
that its peers meet their own failures and not a broken connection.
"""

import os
import platform
import re
import resource
import sys
import time
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore
from torch.nn.parallel import DistributedDataParallel

from proofbook.runners.core.declared.experiment import Declaration, find
from proofbook.runners.core.meters.allocator import AllocatorLimit
from proofbook.runners.core.meters.kernel import heap_bytes, refuse_huge_pages
from proofbook.runners.core.meters.memory import MemoryMeter
from proofbook.runners.core.meters.refusal import DataSegmentLimit, held_bytes_at
from proofbook.runners.core.ranks.confirm import confirm_memory
from proofbook.runners.core.ranks.heartbeat import Heart
from proofbook.runners.core.ranks.phases import BASE
from proofbook.runners.core.ranks.rank import Rank
from proofbook.runners.core.system import accelerator
from proofbook.runners.core.system.links import enter
from proofbook.runners.core.trace.records import Failure
from proofbook.runners.core.trace.schema import Status
from proofbook.runners.system.files import write_json

PATIENCE = timedelta(minutes=30)  # the launcher decides what hangs, not a collective's time-out
_REQUESTED = re.compile(r"[Tt]ried to allocate ([\d.]+) (bytes|[KMG]iB)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# What an error says → what it means: the kind of the failure, and the status of its run.
_MEANINGS: dict[str, tuple[str, Status]] = {
    "can't allocate memory|out of memory|bad_alloc|Cannot allocate memory"
    "|CUBLAS_STATUS_ALLOC_FAILED": ("out_of_memory", "out_of_memory"),
    "Connection reset by peer|Connection closed by peer|Broken pipe": ("peer_lost", "failed"),
    "Timed out waiting|ran into a timeout|Watchdog caught collective": ("timed_out", "deadlocked"),
}


def preload() -> None:
    """Import torch's modules that ranks use, before any is forked, and set torch to one thread."""
    import torch._dynamo  # optimizers load it at their first step otherwise: a second, and memory
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel
    import torch.profiler

    torch.set_num_threads(1)


def _warm_up(device: torch.device, world_size: int, has_group: bool) -> None:
    """Train a tiny model once, so that modules and workspaces are loaded before the meters start.

    They stay for the process's life, and count neither in a budget nor in a high-water mark.
    """
    model: nn.Module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).to(device)
    labels = torch.randint(0, 8, (4,), device=device)
    if has_group and world_size > 1:
        model = DistributedDataParallel(model)
        tensor = torch.ones(8, device=device)
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 0)
        dist.all_gather([torch.empty_like(tensor) for _ in range(world_size)], tensor)
    for optimizer in (
        torch.optim.SGD(model.parameters(), lr=0.0),
        torch.optim.Adam(model.parameters(), lr=0.0, fused=True),
    ):
        with MemoryMeter() if device.type == "cpu" else nullcontext():
            loss = nn.functional.cross_entropy(model(torch.randn(4, 8, device=device)), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def _limit(rank: Rank[Any], budget_bytes: int) -> None:
    """Make the allocator refuse what goes beyond the budget.

    On an accelerator it counts what is requested of its allocator; main memory is not limited.
    """
    if rank.device.type == "cuda":
        rank.limit(AllocatorLimit(budget_bytes, rank.device))
        return
    now = heap_bytes()
    _limit_data(now + budget_bytes)
    rank.limit(DataSegmentLimit(now))


def _limit_data(num_bytes: int | None) -> None:
    """Limit the data segment of this process, or lift that; only Linux enforces it.

    Elsewhere no budget is run (`machine.can_limit_memory`), and nothing is to be lifted: to raise
    a soft limit to an infinite hard one is an error on macOS.
    """
    if platform.system() == "Linux":
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard if num_bytes is None else num_bytes, hard))


def failure_of(error: BaseException, rank: Rank, file: Path) -> tuple[Status, Failure]:
    """Status and Failure by an error's words and type, with the rank's phase and line in `file`."""
    message = str(error).strip() or type(error).__name__
    kind, status = next(
        (meaning for words, meaning in _MEANINGS.items() if re.search(words, message)),
        ("exception", "failed"),
    )
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        kind = status = "out_of_memory"
    elif kind == "exception":
        message = f"{type(error).__name__}: {message}"
    requested = _REQUESTED.search(message)
    frames = extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    is_outside_phases = rank.phase_name == BASE and rank.is_stepping
    return status, Failure(
        kind=kind,
        message=message.splitlines()[0][:300],
        requested_bytes=int(float(requested[1]) * _UNITS[requested[2]]) if requested else None,
        rank=rank.rank,
        held_bytes=held_bytes_at(error) if kind == "out_of_memory" else None,
        phase="step" if is_outside_phases else rank.phase_name,
        step=rank.step_index if rank.step_index >= 0 else None,
        line=f"{file.name}:{lines[-1]}" if lines and status != rank.declaration.expected else None,
    )


def _store(request: dict[str, Any]) -> Store:
    """The store of the process group: a file, or the TCP store that torchrun started."""
    if request["rendezvous"] is None:
        store = request["files"].with_name("store")
        return FileStore(str(store), request["declaration"]["world_size"])
    host, port, prefix = request["rendezvous"]
    return PrefixStore(prefix, TCPStore(host, port, is_master=False, timeout=PATIENCE))


def _prepare(rank: Rank, request: dict[str, Any]) -> None:
    """Join the group, warm up, and set the budget or start the meter."""
    declaration = rank.declaration
    if request["namespace"] is not None:
        enter(request["namespace"])
    if rank.is_metered and platform.system() == "Linux":
        refuse_huge_pages()
    accelerator.select(rank.device)
    if declaration.needs_group and declaration.world_size > 1:
        dist.init_process_group(
            request["backend"],
            store=_store(request),
            rank=rank.rank,
            world_size=declaration.world_size,
            timeout=PATIENCE,
        )
    _warm_up(rank.device, declaration.world_size, declaration.needs_group)
    if rank.pass_name == "budgeted" and declaration.budget_bytes is not None:
        _limit(rank, declaration.budget_bytes)
        rank.start_peak()
    if rank.is_metered:
        rank.start_memory()
    torch.manual_seed(declaration.seed)


def run_rank(request: dict[str, Any]) -> None:
    """Run a request's strategy, write its outcome, exit; after a failure, sleep until killed."""
    files: Path = request["files"]
    for suffix, number in ((".out", 1), (".err", 2)):
        os.dup2(os.open(files.with_suffix(suffix), os.O_WRONLY | os.O_CREAT, 0o600), number)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    experiment = find(request["experiment"])
    declared = request["declaration"]
    settings_class = type(experiment.runs[request["run"]].settings)
    declaration = Declaration(**{**declared, "settings": settings_class(**declared["settings"])})
    heart, record = Heart(files.with_suffix(".heart")), files.with_suffix(".json")
    device = torch.device("cpu")
    if request["device"] == "cuda":
        device = torch.device("cuda", request["rank"] % accelerator.num_devices())
    rank = Rank(request["rank"], declaration, request["pass"], device, heart)
    rank.scratch, rank.followed = files.parent, request["followed"]
    torch.set_num_threads(1)
    try:
        with rank.phase("warm_up"):
            if request["most_bytes"] is not None:
                # What readers try may be more than this machine has, and would make it stall.
                _limit_data(heap_bytes() + request["most_bytes"] // declaration.world_size)
            _prepare(rank, request)
        experiment.strategies[declaration.strategy](rank)
        rank.finish()
        confirm_memory(rank, experiment.strategies[declaration.strategy])
    except BaseException as error:  # noqa: BLE001 whatever it was, the launcher must hear of it
        # The limit first: the record must not run out of memory as the training did.
        rank.lift_limit(error)
        _limit_data(None)
        rank.outcome.status, rank.outcome.failure = failure_of(error, rank, experiment.path)
        rank.keep_peak()
        if rank.outcome.failure.kind == "exception":
            import traceback

            traceback.print_exc()
        write_json(record, rank.outcome.model_dump(mode="json"))
        while True:  # to be ended; what the frames of the error hold, peers may need
            time.sleep(60)
    rank.lift_limit()
    _limit_data(None)
    write_json(record, rank.outcome.model_dump(mode="json"))
    heart.beat("done", rank.step_index)
    if dist.is_initialized() and not rank.has_lost_peers:
        dist.barrier()
    sys.stdout.flush()
    # destroy_process_group() sometimes aborts after FSDP in bf16, and nothing is left to save.
    os._exit(0)
