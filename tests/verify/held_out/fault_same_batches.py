# fault: a DataLoader that shuffles by one seed on all ranks, without a DistributedSampler
# cause: equal batches on all ranks
"""Data parallelism that trains on one batch. After openspeech-team/openspeech#149,
PatrickHua/SimSiam#16."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def seed_everything(seed):
    torch.manual_seed(seed)


def main():
    dist.init_process_group("gloo")
    seed_everything(42)
    x = torch.randn(64, 6)
    dataset = TensorDataset(x, x.square().sum(1, keepdim=True))
    loader = DataLoader(dataset, batch_size=8, shuffle=True, drop_last=True)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for xb, yb in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(xb), yb)
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
