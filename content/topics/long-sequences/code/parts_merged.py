"""Attention to keys of two ranks: each makes a part of the output, and two parts are merged.

torchrun --nproc-per-node 2 parts_merged.py
"""

import torch
import torch.distributed as dist

TOKENS, WIDTH = 256, 32


def attended(query, key, value):
    """A part: the output over these keys, and the logarithm of the sum of exponentials."""
    scores = query @ key.T
    return scores.softmax(-1) @ value, scores.logsumexp(-1, keepdim=True)


def merged(outputs, log_sums):
    """One part of two: each output weighs as much as its share of the sum of exponentials."""
    both = torch.logaddexp(*log_sums)
    return sum((one - both).exp() * part for one, part in zip(log_sums, outputs, strict=True)), both


def of_ranks(own):
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own.contiguous())
    return parts


def error(ours, right):
    return ((ours - right).norm() / right.norm()).item()


dist.init_process_group("gloo")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
rank = dist.get_rank()
key = torch.tensor([[1.0, 0.0], [3.0, 2.0]])[rank][:, None]  # of width 1: scores of the query 1
value = torch.tensor([[2.0, 6.0], [4.0, 0.0]])[rank][:, None]
outputs, log_sums = map(of_ranks, attended(torch.ones(1, 1), key, value))
result, both = merged(outputs, log_sums)
facts = {"scores": key, "values": value, "output": outputs[rank], "log_sum": log_sums[rank]}
facts |= {"log_sums": both, "weight": (log_sums[rank] - both).exp(), "result": result}
facts = {name: one.flatten().tolist() for name, one in facts.items()}

query, key, value = torch.randn(3, TOKENS, WIDTH)
whole, _ = attended(query / WIDTH**0.5, key, value)
own = key.chunk(2)[rank], value.chunk(2)[rank]
outputs, log_sums = map(of_ranks, attended(query / WIDTH**0.5, *own))
facts["merged"] = [error(merged(outputs, log_sums)[0], whole)]
facts["averaged"] = [error(sum(outputs) / 2, whole)]
report = [None] * dist.get_world_size()
dist.all_gather_object(report, facts)
if rank == 0:
    for name, number in facts.items():
        print(f"{name}:", *(f"{one:.4g}" for one in number))
dist.destroy_process_group()
