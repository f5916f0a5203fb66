"""Two groups over the same ranks: one that gives up after a while, and a patient one to report in.

A mistake is made in the first; a rank that meets its time-out sends the others in the second what
it had called, and so every rank knows who waited for whom.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import DebugLevel, FileStore, ProcessGroup, set_debug_level

from runners.experiments.hangs import Settings, flight_recorder
from runners.ranks.rank import Rank

PATIENCE = timedelta(minutes=30)


@contextmanager
def diagnosed(rank: Rank[Settings]) -> Iterator[ProcessGroup]:
    """A group with the run's time-out; afterwards what the flight recorder shows is measured.

    Whatever the group raised is raised again, once the ranks have compared what they called.
    """
    group = _made(rank)
    failure: RuntimeError | None = None
    start = time.perf_counter()
    try:
        yield group
    except RuntimeError as error:
        failure = error
        rank.measure_seconds("until_error", [time.perf_counter() - start])
    rank.has_lost_peers = _compare(rank, group, failure is not None) > 0
    if failure is not None:
        raise failure


def _made(rank: Rank[Settings]) -> ProcessGroup:
    """The group in which mistakes are made; the recorder must be on before any group is."""
    flight_recorder.switch_on()
    if getattr(rank.settings, "checks_calls", False):
        set_debug_level(DebugLevel.DETAIL)
    store = FileStore(str(rank.scratch / "talk"), rank.world_size)
    dist.init_process_group(
        "gloo", store=store, rank=rank.rank, world_size=rank.world_size, timeout=PATIENCE
    )
    timeout = timedelta(seconds=rank.settings.timeout_seconds)
    group: ProcessGroup = dist.new_group(timeout=timeout)
    dist.barrier()
    return group


def _compare(rank: Rank[Settings], group: ProcessGroup, has_failed: bool) -> int:
    """Gather what every rank called; how many ranks met an error."""
    own = flight_recorder.calls(group.group_name)
    gathered: list[tuple[list[flight_recorder.Call], bool]] = [([], False)] * rank.world_size
    dist.all_gather_object(gathered, (own, has_failed))
    found = flight_recorder.compare([made for made, _ in gathered])
    num_failed = sum(failed for _, failed in gathered)
    rank.measure("num_calls", [len(made) for made, _ in gathered])
    rank.measure("num_ranks_in_error", num_failed)
    rank.measure("first_call_apart", found.first_apart)
    rank.measure("waiting_ranks", list(found.waiting) if num_failed else [])
    rank.measure("finding", found.in_words)
    return num_failed
