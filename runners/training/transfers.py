"""The α–β model of a transfer, t = α + β·bytes, and the times that it is fitted to."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from proofbook.runners.training.rank import Rank


def fit(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """The pair (α, β) by least squares of the *relative* errors, so that each size weighs alike.

    At least two sizes, in bytes, differ. A transfer costs α seconds to start, and β by the byte.
    """
    beta, alpha = np.polyfit(sizes, seconds, 1, w=[1 / t for t in seconds])
    return float(alpha), float(beta)


def join_group(store: Path, rank: int, world_size: int) -> None:
    """Form a group on gloo through a file, where no launcher has formed one."""
    dist.init_process_group(
        "gloo", store=FileStore(str(store), world_size), rank=rank, world_size=world_size
    )


@contextmanager
def sent(rank: Rank, **measures: int) -> Iterator[None]:
    """Record the bytes that this rank's own link, if it has one, sends in the block, by step.

    `measures` names them, and says into how many steps they are divided.
    """
    before = rank.sent_payload_bytes()
    yield
    after = rank.sent_payload_bytes()
    if before is not None and after is not None:
        sent_bytes = after - before
        for name, num_steps in measures.items():
            each = sent_bytes / num_steps if num_steps > 1 else sent_bytes
            rank.measure(name, each, unit="bytes", repeats="kernel")


def seconds_alone(rank: Rank, call: Callable[[], object]) -> float:
    """Seconds of `call()`, a collective beside which nothing runs, once all ranks are ready."""
    dist.barrier()
    rank.settle()
    start = time.perf_counter()
    call()
    rank.settle()
    return time.perf_counter() - start


def in_turns(
    rank: Rank, calls: Sequence[Callable[[], object]], num_turns: int
) -> list[list[float]]:
    """Seconds as `[turn][collective]`, each collective alone, after a turn that is left out.

    That turn finds cold caches and connections that have not grown yet.
    """
    turns = [[seconds_alone(rank, call) for call in calls] for _ in range(num_turns + 1)]
    return turns[1:]
