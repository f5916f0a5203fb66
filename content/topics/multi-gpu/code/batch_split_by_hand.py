"""A batch split over ranks: each computes its shard, and one all-reduce sums gradients.

Every rank builds the same model and takes its own shard of the batch. The mean loss of
a shard is weighted by the shard's share of the samples, so the sum of the ranks'
gradients is the gradient of the whole batch, and all ranks apply the same update. A
rank saves the activations of its own samples only.

torchrun --nproc-per-node 2 batch_split_by_hand.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import cross_entropy

BATCH, FEATURES, WIDTH, CLASSES, UPDATES = 2001, 16, 64, 4, 5  # shards of 1000 and 1001
# closed_form_bytes: 4 * (FEATURES * WIDTH + WIDTH + WIDTH * CLASSES + CLASSES)


def build_model():
    torch.manual_seed(0)  # the same values on every rank
    hidden, output = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)
    return nn.Sequential(hidden, nn.Tanh(), output)


def shard_of(rank, world_size):
    """The samples of a rank; the sizes of shards differ by at most one."""
    return slice(rank * BATCH // world_size, (rank + 1) * BATCH // world_size)


def backward(model, samples, labels):
    """Backward from the weighted mean loss. Returns the loss and the saved bytes."""
    stored, saved = {p.untyped_storage().data_ptr() for p in model.parameters()}, {}

    def note(tensor):  # autograd calls it with each tensor that backward needs
        place = tensor.untyped_storage().data_ptr()
        if place not in stored and tensor.is_floating_point():
            saved[place] = tensor.nbytes
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        loss = cross_entropy(model(samples), labels)
    (loss * len(labels) / BATCH).backward()
    return loss.item(), sum(saved.values())


def sum_gradients(model):
    """Sum the weighted gradients over the ranks. Returns the bytes all-reduced."""
    for p in model.parameters():
        dist.all_reduce(p.grad)
    return sum(p.grad.nbytes for p in model.parameters())


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    samples, labels = torch.randn(BATCH, FEATURES), torch.randint(CLASSES, (BATCH,))
    own = shard_of(rank, world_size)
    split, whole = build_model(), build_model()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m in (split, whole)]
    for _ in range(UPDATES):
        of_shard = backward(split, samples[own], labels[own])
        num_bytes = sum_gradients(split)
        of_batch = backward(whole, samples, labels)  # for comparison: one device
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    pairs = zip(split.parameters(), whole.parameters(), strict=True)
    difference = max((a - b).abs().max().item() for a, b in pairs)
    dist.all_gather_object(shards := [None] * world_size, of_shard)
    if rank == 0:
        print(f"largest difference from one device: {difference:.1e}")
        for name, (loss, saved) in [*enumerate(shards), ("whole", of_batch)]:
            print(f"{name}: loss {loss:.4f}, {saved:,} bytes saved for backward")
        print(f"bytes all-reduced in a step: {num_bytes:,}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [{"difference": difference, "counted_bytes": num_bytes}]


if __name__ == "__main__":
    report = main()
