"""Two context ranks, each with half of a sample that begins with a prompt, compute one gradient.

torchrun --nproc-per-node 2 labels_of_part_right.py
"""

import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
hidden, head = torch.randn(32, 8), torch.randn(8, 10, requires_grad=True)
labels = torch.randint(10, (32,))
labels[:12] = -100  # the prompt does not count
true = torch.autograd.grad(cross_entropy(hidden @ head, labels), head)[0]

shard, targets = hidden.chunk(size)[rank], labels.chunk(size)[rank]
num_labels = (targets != -100).sum()
dist.all_reduce(num_labels)
loss = cross_entropy(shard @ head, targets, reduction="sum") * size / num_labels
loss.backward()
dist.all_reduce(head.grad)
head.grad /= size

apart = ((head.grad - true).norm() / true.norm()).item()
if rank == 0:
    print(f"relative error of the gradient: {apart:.2g}")
report = [{"apart": apart}]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
