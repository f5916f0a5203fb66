"""Cross-entropy of one token whose logits are divided by vocabulary: three numbers are combined.

torchrun --nproc-per-node 2 vocabulary_loss_smallest.py
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

words = ["cat", "dog", "hen", "cow", "pig", "fox"]
whole = torch.tensor([2.0, 0.0, 1.0, 3.0, 1.0, 0.0], dtype=torch.float64)  # a logit for each word
label = words.index("cat")


def combined(number, operation=dist.ReduceOp.SUM):
    result = number.clone()
    dist.all_reduce(result, operation)
    return result


own = torch.arange(len(words)).chunk(size)[rank]  # the words of this rank
logits = whole[own]
largest = logits.max()
largest_of_all = combined(largest, dist.ReduceOp.MAX)
exponentials = (logits - largest_of_all).exp()
exponential_sum = exponentials.sum()
sum_of_all = combined(exponential_sum)
label_logit = logits[own == label].sum()  # zero on the ranks that do not have the label
label_of_all = combined(label_logit)
loss = sum_of_all.log() + largest_of_all - label_of_all

results = {
    "logits": logits, "largest": largest, "largest_of_all": largest_of_all,
    "exponentials": exponentials, "exponential_sum": exponential_sum, "sum_of_all": sum_of_all,
    "label_logit": label_logit, "label_of_all": label_of_all, "loss": loss,
    "one_process_loss": cross_entropy(whole, torch.tensor(label)),
}  # fmt: skip
report = [None] * size
numbers = {name: result.tolist() for name, result in results.items()}
dist.all_gather_object(report, {"words": [words[n] for n in own], **numbers})
if rank == 0:
    for n, one in enumerate(report):
        print(f"rank {n}: {one['largest']}, {one['exponential_sum']:.4f}, {one['label_logit']}")
    print(f"all: {largest_of_all.item()}, {sum_of_all.item():.4f}, {label_of_all.item()}")
    print(f"loss {loss.item():.4f}, of one process {numbers['one_process_loss']:.4f}")
dist.destroy_process_group()
