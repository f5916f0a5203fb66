"""What a loader's worker copies of a data set that it only reads: a list, and a tensor.

torchrun --nproc-per-node 1 copied_by_workers.py
"""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

NUM_SAMPLES = 1_000_000


class Values(Dataset):
    """Numbers, of which a worker reads all for its only item."""

    def __init__(self, values: Sequence[float] | torch.Tensor) -> None:
        self.values = values

    def __len__(self) -> int:
        """One item."""
        return 1

    def __getitem__(self, index: int) -> int:
        """The bytes that this process stopped sharing while it read the numbers."""
        before = own_bytes()
        total = self.values.sum() if isinstance(self.values, torch.Tensor) else sum(self.values)
        assert total > index
        return own_bytes() - before


def own_bytes() -> int:
    """The bytes of memory that belong to this process alone, as Linux counts them."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("Private_Dirty:")]
    return 1024 * int(line.split()[1])


dist.init_process_group("gloo")
numbers = torch.rand(NUM_SAMPLES)
report = [{}]
for name, values in (("list", numbers.tolist()), ("tensor", numbers)):
    loader = DataLoader(Values(values), batch_size=None, num_workers=1)
    [report[0][f"{name}_bytes"]] = loader
    print(f"{name}: the worker copied {report[0][f'{name}_bytes'] / 2**20:.1f} MiB")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
