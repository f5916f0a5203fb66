"""More ranks, as many rows each, all else as before: torchrun --nproc-per-node 4 grown_batch.py"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for num_ranks in (1, 4):
    torch.manual_seed(0)
    rows = torch.randn(3200, 8)
    targets, weight = rows @ torch.ones(8, 1), torch.zeros(8, 1)
    for batch in torch.arange(3200).split(32 * num_ranks):  # each row once
        own = rows[batch[dist.get_rank() % num_ranks :: num_ranks]]
        aim = targets[batch[dist.get_rank() % num_ranks :: num_ranks]]
        gradient = own.T @ (own @ weight - aim) / len(own)
        dist.all_reduce(gradient)
        weight -= 0.02 * gradient / dist.get_world_size()
    if dist.get_rank() == 0:
        loss = (rows @ weight - targets).square().mean()
        print(f"{num_ranks} ranks of 32 rows: {3200 // (32 * num_ranks)} updates, loss {loss:.4f}")
dist.barrier()
