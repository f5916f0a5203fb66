"""A mean of means over ranks: torchrun --nproc-per-node 2 mean_of_means.py"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, num_ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
samples, targets = torch.randn(100, 8), torch.randn(100, 1)
model = torch.nn.Linear(8, 1)
losses = (model(samples) - targets).square().flatten()
whole = torch.autograd.grad(losses.mean(), model.weight, retain_graph=True)[0]
own = losses[:80] if rank == 0 else losses[80:]
for name, share in (("equal weights", 1 / num_ranks), ("by samples", len(own) / len(samples))):
    gradient = torch.autograd.grad(own.mean() * share, model.weight, retain_graph=True)[0]
    dist.all_reduce(gradient)
    if rank == 0:
        print(f"{name}: {(gradient - whole).norm() / whole.norm():.1%} off")
dist.barrier()
