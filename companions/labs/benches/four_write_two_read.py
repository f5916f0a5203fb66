"""The bench of `four_write_two_read`: a checkpoint that another number of ranks reads."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
import torch.distributed as dist
from torch import Tensor

from proofbook.companions.labs import laws
from proofbook.companions.labs.disks import Store
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement, normal
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

WRITTEN, READ = "bytes to the store", "bytes from the store"
INDEX_BYTES = 1024  # of what a checkpoint says about itself
ALLOWED = ("barrier",)  # between writing and reading


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: the rows of three tensors, and the width of two of them."""
    words, hidden = draw.randrange(240, 360), draw.randrange(160, 200)
    return {"words": words, "hidden": hidden, "width": draw.randrange(12, 20), "outputs": 5}


def _shapes(case: LabCase) -> dict[str, tuple[int, ...]]:
    settings, width = case.settings, case.settings["width"]
    shapes = (settings["words"], width), (settings["hidden"], width), (settings["outputs"],)
    return dict(zip(("embedding", "up", "bias"), shapes, strict=True))


def _part(tensor: Tensor, rank: int, num_ranks: int) -> Tensor:
    share = -(-len(tensor) // num_ranks)
    return tensor[rank * share : (rank + 1) * share]


def _whole(case: LabCase, dtype: torch.dtype) -> dict[str, Tensor]:
    places = enumerate(_shapes(case).items())
    return {name: normal(shape, case.generator(at), dtype) for at, (name, shape) in places}


def _jobs(world_size: int) -> tuple[tuple[int, int], ...]:
    """How many ranks write, and how many read; the last job is the one that is metered."""
    return (2 * world_size, world_size), (world_size, world_size // 2)


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the rows that a rank reads in each job, and its bytes in the last one."""
    returned: dict[str, Tensor] = {}
    whole = _whole(case, torch.float32)
    rows = {name: len(tensor) for name, tensor in whole.items()}
    for writers, readers in _jobs(case.world_size):
        store = Store()
        turns = range(rank.rank, writers, case.world_size)  # a process writes as several ranks
        parts = {turn: {n: _part(whole[n], turn, writers).clone() for n in rows} for turn in turns}
        with rank.metered({f"parts {turn}": parts[turn] for turn in turns}):
            for turn in turns:
                program.write(store, parts[turn], turn, writers)
            dist.barrier()
            is_reader = rank.rank < readers
            read = program.read(store, dict(rows), rank.rank, readers) if is_reader else {}
        returned |= {f"{n} of {writers} on {readers}": read.get(n, whole[n][:0]) for n in rows}
    counts = {WRITTEN: store.written, READ: store.fetched}
    return returned | {name: torch.tensor(count) for name, count in counts.items()}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's whole tensors, by name and job."""
    jobs, whole = _jobs(case.world_size), _whole(case, dtype)
    return {f"{n} of {job[0]} on {job[1]}": tensor for job in jobs for n, tensor in whole.items()}


def _share(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    readers = int(name.split()[-1])
    return _part(tensor, rank, readers) if rank < readers else tensor[:0]


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: rows to the bit; each byte written and read once; parts alone held."""
    shapes = _shapes(case).values()
    written, read = (
        [-(-rows // num_ranks) * ELEMENT_BYTES * torch.Size(row).numel() for rows, *row in shapes]
        for num_ranks in (case.world_size, case.world_size // 2)
    )
    return [
        laws.same_as_one_process(one_process, case, _share),
        laws.counts_at_most("written", WRITTEN, sum(written) + INDEX_BYTES, "wrote"),
        laws.counts_at_most("read", READ, sum(read) + INDEX_BYTES, "read"),
        laws.holds_at_most(sum(read) + max(read) + INDEX_BYTES),
    ]
