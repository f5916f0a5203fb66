"""Two ranks with links of their own: what an all_reduce sends, and one that sends for ever."""

import time
from pathlib import Path

import torch
import torch.distributed as dist

from proofbook.runners.core.declared.experiment import Declaration

QUESTION = "Does each rank live in a network of its own?"
NUM_VALUES = 1 << 20


def _plan(strategy, bits_per_second=None):
    return Declaration(
        strategy,
        2,
        passes=("timed",),
        only_on_cpu=True,
        own_network=True,
        settings={"link_bits_per_second": bits_per_second},
    )


RUNS = {"free": _plan("reduce"), "slow": _plan("reduce", 100_000_000), "endless": _plan("endless")}


def reduce(rank):
    """One all_reduce, counted and timed."""
    rank.measure("namespace", str(Path("/proc/self/ns/net").readlink()))
    tensor = torch.ones(NUM_VALUES)
    dist.all_reduce(tensor)
    rank.measure("interfaces", _used())
    before, start = rank.sent_payload_bytes(), time.perf_counter()
    dist.all_reduce(tensor)
    rank.measure_seconds("all_reduce", [time.perf_counter() - start])
    after = rank.sent_payload_bytes()
    assert before is not None
    assert after is not None
    _count_little(rank)
    rank.measure("sent_payload_bytes", after - before)


def _used():
    """Interfaces that something has come in by, but for the loopback; others the kernel adds."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    counts = {name.strip(): rest.split() for name, _, rest in (one.partition(":") for one in lines)}
    return sorted(name for name, count in counts.items() if int(count[0]) and name != "lo")


def _count_little(rank):
    """What passes between two counts, and what a barrier between them adds."""
    counts = [rank.sent_payload_bytes(), rank.sent_payload_bytes()]
    dist.barrier()
    counts.append(rank.sent_payload_bytes())
    first, second, third = (c for c in counts if c is not None)
    rank.measure("idle_payload_bytes", second - first)
    rank.measure("barrier_payload_bytes", third - second)


def endless(rank):
    tensor = torch.ones(1)
    while True:
        with rank.phase("forward"):
            dist.all_reduce(tensor)
