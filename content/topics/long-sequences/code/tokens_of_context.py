"""Two samples, each on two context ranks, with unequal numbers of labels: who divides by what.

torchrun --nproc-per-node 4 tokens_of_context.py
"""

import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

CONTEXT, TOKENS, WIDTH, VOCABULARY, PADDING = 2, 32, 16, 24, -100

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
data_rank, part = divmod(rank, CONTEXT)
lines = [range(i, size, CONTEXT) for i in range(CONTEXT)]  # ranks with the same part of samples
data = [dist.new_group([*line]) for line in lines][part]
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
hidden = torch.randn(size // CONTEXT, TOKENS, WIDTH)
labels = torch.randint(VOCABULARY, hidden.shape[:2])
labels[0, :12], labels[1, 30:] = PADDING, PADDING  # a prompt, and the end of a sample
head = torch.randn(WIDTH, VOCABULARY)


def summed(hidden, labels):
    """The sum of the losses, its gradient, and how many labels count."""
    weight = head.clone().requires_grad_()
    logits = (hidden @ weight).flatten(0, -2)
    total = cross_entropy(logits, labels.flatten(), reduction="sum", ignore_index=PADDING)
    return total.item(), torch.autograd.grad(total, weight)[0], (labels != PADDING).sum().item()


def over_ranks(number, group=None):
    dist.all_reduce(number := torch.as_tensor(number).clone(), group=group)
    return number


total, true, num_labels = summed(hidden, labels)
true, loss = true / num_labels, total / num_labels
shards = [whole[data_rank].chunk(CONTEXT)[part] for whole in (hidden, labels)]
own_total, own, num_own = summed(*shards)
num_sample = (labels[data_rank] != PADDING).sum()
WAYS = {  # what each rank's sum is divided by, before the ranks' gradients are added
    "all_labels": over_ranks(num_own),
    "all_labels_then_mean": over_ranks(num_own) * size,  # FSDP and DDP average by default
    "own_labels_then_mean": num_own * size,
    "data_labels": over_ranks(num_own, data),  # counted over the data axis alone
    "sample_labels": over_ranks(num_sample),  # every context rank counts its whole sample
}
report = {}
for way, divisor in WAYS.items():
    gradient, found = over_ranks(own / divisor), over_ranks(own_total / divisor).item()
    size_of = (gradient.norm() / true.norm()).item()
    turned = ((gradient / size_of - true).norm() / true.norm()).item()
    report |= {f"{way}_norm": size_of, f"{way}_turned": turned, f"{way}_ratio": found / loss}
    if rank == 0:
        print(f"{way:>20}: norm {size_of:.3g} of the true one, turned by {turned:.2g}")
report = [report]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
