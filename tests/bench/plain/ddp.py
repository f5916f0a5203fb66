"""The experiment `ddp` as a plain script, without a recorder: one run a call.

    torchrun --nproc-per-node 4 tests/bench/plain/ddp.py --batch-size 25
    torchrun --nproc-per-node 1 tests/bench/plain/ddp.py --batch-size 100

Prints the loss of the last epoch on rank 0, so that `make bench` sees that it did the work.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runners.training.teacher import Samples, Scaling, teach

NUM_SAMPLES, NUM_VALIDATION_ROWS, NUM_FEATURES, NUM_HIDDEN, NUM_CLASSES = 10000, 1000, 10, 64, 4
NUM_EPOCHS, LEARNING_RATE, MOMENTUM, SEED = 5, 0.1, 0.9, 42


def samples_of(rank: int, world_size: int, options: argparse.Namespace) -> tuple[Samples, Samples]:
    """This rank's shard and the validation samples, scaled."""
    lesson = teach(
        SEED,
        num_samples=NUM_SAMPLES,
        num_validation_samples=NUM_VALIDATION_ROWS,
        num_features=NUM_FEATURES,
        num_classes=NUM_CLASSES,
        temperature=0.15,
        dtype=getattr(torch, options.dtype),
    )
    training = lesson.training
    if options.sorted:
        training = training.take(training.features[:, 0].argsort(stable=True))
    size = NUM_SAMPLES // world_size
    shard = training.take(slice(rank * size, (rank + 1) * size))
    scaling = Scaling.of((shard if options.per_shard else training).features)
    return (
        Samples(scaling.apply(shard.features), shard.labels),
        Samples(scaling.apply(lesson.validation.features), lesson.validation.labels),
    )


def main() -> None:
    """Train to the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--dtype", default="float32")
    for flag in ("--no-sync", "--per-shard", "--sorted"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    training, validation = samples_of(rank, world_size, options)
    torch.manual_seed(SEED + rank)
    model: nn.Module = nn.Sequential(
        nn.Linear(NUM_FEATURES, NUM_HIDDEN), nn.ReLU(), nn.Linear(NUM_HIDDEN, NUM_CLASSES)
    ).to(training.features.dtype)
    if world_size > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    with model.no_sync() if options.no_sync else nullcontext():
        for _ in range(NUM_EPOCHS):
            for start in range(0, len(training.labels), options.batch_size):
                batch = training.take(slice(start, start + options.batch_size))
                loss = nn.functional.cross_entropy(model(batch.features), batch.labels)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            if rank == 0:
                with torch.no_grad():
                    nn.functional.cross_entropy(model(validation.features), validation.labels)
    if rank == 0:
        print(f"loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
