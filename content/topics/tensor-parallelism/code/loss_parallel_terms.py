"""A loss over a divided vocabulary: what it sends, and a term that `loss_parallel` gets wrong.

Each rank has the logits of its part of the vocabulary. torch's `loss_parallel` computes their
cross-entropy without gathering them. Within it, the backward pass of `log_softmax` is right for
cross-entropy alone: another term, here the distance from a teacher, gets a wrong gradient.

torchrun --nproc-per-node 2 loss_parallel_terms.py
"""

import contextlib
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy, log_softmax

TOKENS, VOCABULARY = 16, 1024


def one_process(logits, labels, teacher):
    loss = cross_entropy(logits, labels)
    return (
        loss - (teacher * log_softmax(logits, -1)).sum() / TOKENS if teacher is not None else loss
    )


def divided(mesh, whole, labels, teacher, gathers):
    """The gradient of the logits, gathered; `gathers` them before the loss as well."""
    logits = distribute_tensor(whole.detach(), mesh, [Shard(-1)]).requires_grad_()
    used = logits.redistribute(placements=[Replicate()]) if gathers else logits
    placed = [Replicate()] if gathers else [Shard(-1)]
    labels = distribute_tensor(labels, mesh, [Replicate()])
    with contextlib.nullcontext() if gathers else loss_parallel():
        loss = cross_entropy(used, labels)
        if teacher is not None:
            soft = distribute_tensor(teacher, mesh, placed) * log_softmax(used, -1)
            loss = loss - soft.sum().redistribute(placements=[Replicate()]) / TOKENS
        loss.backward()
    return logits.grad.full_tensor()


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    whole = torch.randn(TOKENS, VOCABULARY, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(VOCABULARY, (TOKENS,))
    teacher = torch.randn(TOKENS, VOCABULARY, dtype=torch.float64).softmax(-1)
    report = {}
    for term, probabilities in (("cross_entropy", None), ("with_teacher", teacher)):
        (true,) = torch.autograd.grad(one_process(whole, labels, probabilities), whole)
        for way in ("parallel", "gathered"):
            gradient = divided(mesh, whole, labels, probabilities, gathers=way == "gathered")
            error = ((gradient - true).norm() / true.norm()).item()
            report[f"{term}_{way}"] = error
            if dist.get_rank() == 0:
                print(f"{term}, {way}: relative error {error:.1e}")
    logits = distribute_tensor(whole.detach(), mesh, [Shard(-1)])
    labels = distribute_tensor(labels, mesh, [Replicate()])
    with CommDebugMode() as communication, loss_parallel():
        cross_entropy(logits, labels)
    report["num_collectives"] = communication.get_total_counts()
    if dist.get_rank() == 0:
        print(f"collectives of the divided cross-entropy: {report['num_collectives']}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [report]


if __name__ == "__main__":
    report = main()
