"""The loss that balances experts, for a batch on two ranks.

torchrun --nproc-per-node 2 balance_of_ranks_right.py
"""

import time

import torch
import torch.distributed as dist

TOKENS, WIDTH, EXPERTS = 64, 8, 4

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
samples = torch.randn(size, TOKENS, WIDTH) + torch.randn(size, 1, WIDTH)  # ranks differ in kind
router = torch.randn(WIDTH, EXPERTS)


def shares_and_scores(tokens):
    """The share of the tokens that choose each expert, and its mean score."""
    scores = (tokens @ router).softmax(-1)
    return scores.argmax(-1).bincount(minlength=EXPERTS) / len(tokens), scores.mean(0)


def mean_of_ranks(tensor):
    dist.all_reduce(tensor)
    return tensor / size


shares, scores = shares_and_scores(samples[rank])
balance = EXPERTS * (mean_of_ranks(shares) * scores).sum()
balance = mean_of_ranks(balance)  # as gradients are averaged

shares, scores = shares_and_scores(samples.flatten(0, 1))
whole = EXPERTS * (shares * scores).sum()
if rank == 0:
    print(f"balancing loss of the ranks {balance:.4f}, of one process {whole:.4f}")
apart = (balance - whole).abs().item()
report = [{"balance": balance.item(), "whole": whole.item(), "apart": apart}]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
