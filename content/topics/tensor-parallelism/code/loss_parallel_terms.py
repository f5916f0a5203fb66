"""A loss over a divided vocabulary: what it sends, and a term that `loss_parallel` gets wrong.

Each rank has the logits of its part of the vocabulary. torch's `loss_parallel` computes their
cross-entropy without gathering them. Within it, the backward pass of `log_softmax` is right for
cross-entropy alone: another term, here the distance from a teacher, gets a wrong gradient.

torchrun --nproc-per-node 2 loss_parallel_terms.py
"""

import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy, log_softmax

TOKENS, VOCABULARY = 16, 1024


def of_labels(logits, labels, teacher):
    return cross_entropy(logits, labels)


def with_teacher(logits, labels, teacher):
    return cross_entropy(logits, labels) - (teacher * log_softmax(logits, -1)).sum() / TOKENS


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
whole, teacher = torch.randn(2, TOKENS, VOCABULARY, dtype=torch.float64)
labels, teacher = torch.randint(VOCABULARY, (TOKENS,)), teacher.softmax(-1)
logits = distribute_tensor(whole, mesh, [Shard(-1)]).requires_grad_()
placed = (
    distribute_tensor(labels, mesh, [Replicate()]),
    distribute_tensor(teacher, mesh, [Shard(-1)]),
)
whole.requires_grad_()
facts = {}
for name, loss in (("cross_entropy", of_labels), ("with_teacher", with_teacher)):
    (true,) = torch.autograd.grad(loss(whole, labels, teacher), whole)
    with loss_parallel():
        (parallel,) = torch.autograd.grad(loss(logits, *placed), logits)
    (gathered,) = torch.autograd.grad(loss(logits.full_tensor(), labels, teacher), logits)
    for way, gradient in (("parallel", parallel), ("gathered", gathered)):
        error = ((gradient.full_tensor() - true).norm() / true.norm()).item()
        facts[f"{name}_{way}"] = error
        if dist.get_rank() == 0:
            print(f"{name}, {way}: relative error {error:.1e}")
with CommDebugMode() as communication, loss_parallel():
    of_labels(logits, *placed)
facts["num_collectives"] = communication.get_total_counts()
if dist.get_rank() == 0:
    print(f"collectives of the divided cross-entropy: {facts['num_collectives']}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
report = [facts]
