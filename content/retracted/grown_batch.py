"""More ranks, the same samples per rank: torchrun --nproc-per-node 4 grown_batch.py"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for num_ranks in (1, 4):
    torch.manual_seed(0)
    samples = torch.randn(3200, 8)
    targets, weight = samples @ torch.ones(8, 1), torch.zeros(8, 1)
    for batch in torch.arange(3200).split(32 * num_ranks):  # each sample once
        own = samples[batch[dist.get_rank() % num_ranks :: num_ranks]]
        aim = targets[batch[dist.get_rank() % num_ranks :: num_ranks]]
        gradient = own.T @ (own @ weight - aim) / len(own)
        dist.all_reduce(gradient)
        weight -= 0.02 * gradient / dist.get_world_size()
    if dist.get_rank() == 0:
        loss = (samples @ weight - targets).square().mean()
        print(
            f"{num_ranks} ranks of 32 samples: {3200 // (32 * num_ranks)} updates, loss {loss:.4f}"
        )
dist.barrier()
