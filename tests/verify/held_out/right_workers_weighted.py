# right: unequal batches weighted by their samples, data from a loader with worker processes
"""The last batch is smaller on the last rank; the loss weighs it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __init__(self, start, stop):
        self.start, self.stop = start, stop

    def __len__(self):
        return self.stop - self.start

    def __getitem__(self, i):
        x = torch.randn(4, generator=torch.Generator().manual_seed(self.start + i))
        return x, x.square()


def main():
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine = Squares(20 * rank, 20 * rank + (17 if rank == ranks - 1 else 20))
    loader = DataLoader(mine, batch_size=8, num_workers=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for x, y in loader:
            count = torch.tensor(float(len(x)))
            dist.all_reduce(count)
            loss = nn.functional.mse_loss(model(x), y) * len(x) * ranks / count
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
