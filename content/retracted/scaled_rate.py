"""A rate scaled with the ranks, the same samples: torchrun --nproc-per-node 1 scaled_rate.py"""

import torch

for num_ranks in (1, 4, 16, 64):
    torch.manual_seed(0)
    samples = torch.randn(6400, 8)
    targets, weight = samples @ torch.ones(8, 1) + torch.randn(6400, 1), torch.zeros(8, 1)
    for batch in samples.chunk(6400 // (10 * num_ranks)):
        aim = targets[: len(batch)]
        targets = targets.roll(-len(batch), 0)
        weight -= 0.05 * num_ranks * batch.T @ (batch @ weight - aim) / len(batch)
    print(f"{num_ranks:>2} ranks of 10 samples: {(weight - 1).norm():.3g} from the true weights")
