"""An iterable data set that each worker of each rank reads whole, and one that they divide.

torchrun --nproc-per-node 2 iterable_whole.py
"""

import time
from collections.abc import Iterator

import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

NUM_SAMPLES, NUM_WORKERS = 12, 2


class Stream(IterableDataset):
    """The numbers of samples, in order."""

    def __init__(self, rank: int, num_ranks: int, is_divided: bool) -> None:
        self.rank, self.num_ranks, self.is_divided = rank, num_ranks, is_divided

    def __iter__(self) -> Iterator[int]:
        """The samples that this worker of this rank reads."""
        first, step = 0, 1
        if self.is_divided:
            worker = get_worker_info()  # None where the loader has no workers
            first = self.rank * worker.num_workers + worker.id
            step = self.num_ranks * worker.num_workers
        yield from range(first, NUM_SAMPLES, step)


dist.init_process_group("gloo")
rank, num_ranks = dist.get_rank(), dist.get_world_size()
report = [{}] * num_ranks
own = {}
for way in ("whole", "divided"):
    stream = Stream(rank, num_ranks, is_divided=way == "divided")
    loader = DataLoader(stream, batch_size=None, num_workers=NUM_WORKERS)
    drawn = [None] * num_ranks
    dist.all_gather_object(drawn, list(loader))
    samples = [sample for one in drawn for sample in one]
    own |= {f"{way}_drawn": len(samples), f"{way}_distinct": len(set(samples))}
dist.all_gather_object(report, own)
if rank == 0:
    for way in ("whole", "divided"):
        print(f"{way}: {own[f'{way}_drawn']} samples, {own[f'{way}_distinct']} of them distinct")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
