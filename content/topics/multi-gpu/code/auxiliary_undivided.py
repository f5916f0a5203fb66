"""A second loss that is not divided by the number of microbatches, and one that is.

torchrun --nproc-per-node 1 auxiliary_undivided.py
"""

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn

NUM_MICROBATCHES = 4

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(16, 4)
batch, targets = torch.randn(8, 16), torch.randint(4, (8,))


def gradient(num_microbatches: int, is_divided: bool, auxiliary: float = 1.0) -> Tensor:
    """The gradient of both losses, accumulated; equal microbatches make both of them means."""
    model.zero_grad()
    for part in torch.arange(len(batch)).chunk(num_microbatches):
        logits = model(batch[part])
        loss = nn.functional.cross_entropy(logits, targets[part]) / num_microbatches
        balance = auxiliary * logits.square().mean()
        (loss + (balance / num_microbatches if is_divided else balance)).backward()
    return model.weight.grad.clone()


main = gradient(1, is_divided=True, auxiliary=0.0)
balance = gradient(1, is_divided=True) - main  # the share of the second loss, in one batch
report = [{}]
for way, is_divided in (("undivided", False), ("divided", True)):
    share = gradient(NUM_MICROBATCHES, is_divided) - main
    report[0][way] = ((share * balance).sum() / balance.square().sum()).item()
    print(f"{way}: the second loss counts {report[0][way]:.4f} times")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
