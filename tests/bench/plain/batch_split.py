"""The experiment `batch_split` as a plain script, without a recorder: one run a call.

    torchrun --nproc-per-node 2 tests/bench/plain/batch_split.py
    torchrun --nproc-per-node 1 tests/bench/plain/batch_split.py

Prints the loss of the last batch, so that `make bench` sees that it did the work.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from runners.training.teacher import Samples, Scaling, teach

NUM_SAMPLES, NUM_VALIDATION_ROWS, NUM_FEATURES, NUM_HIDDEN, NUM_CLASSES = 10000, 1000, 20, 128, 10
BATCH_SIZE, NUM_EPOCHS, LEARNING_RATE, MOMENTUM, SEED = 100, 5, 0.05, 0.9, 42


def split_step(model: nn.Module, samples: Samples, rank: int, world_size: int) -> float:
    """Scatter, forward, gather, loss on rank 0, scatter back, backward, sum of gradients."""
    own = torch.empty(BATCH_SIZE // world_size, NUM_FEATURES)
    dist.scatter(own, list(samples.features.chunk(world_size)) if rank == 0 else None)
    logits = model(own)
    gathered = [torch.empty_like(logits) for _ in range(world_size)] if rank == 0 else None
    dist.gather(logits.detach(), gathered)
    parts: list[Tensor] | None = None
    value = 0.0
    if gathered is not None:
        whole = torch.cat(gathered).requires_grad_()
        loss = nn.functional.cross_entropy(whole, samples.labels)
        loss.backward()
        parts = list(whole.grad.chunk(world_size))
        value = loss.item()
    gradient = torch.empty_like(logits)
    dist.scatter(gradient, parts)
    logits.backward(gradient)
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    return value


def whole_step(model: nn.Module, samples: Samples) -> float:
    """The same batch on one device."""
    loss = nn.functional.cross_entropy(model(samples.features), samples.labels)
    loss.backward()
    return loss.item()


def main() -> None:
    """Train to the end."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    lesson = teach(
        SEED,
        num_samples=NUM_SAMPLES,
        num_validation_samples=NUM_VALIDATION_ROWS,
        num_features=NUM_FEATURES,
        num_classes=NUM_CLASSES,
        temperature=0.05,
    )
    scaling = Scaling.of(lesson.training.features)
    training = Samples(scaling.apply(lesson.training.features), lesson.training.labels)
    validation = Samples(scaling.apply(lesson.validation.features), lesson.validation.labels)
    torch.manual_seed(SEED)
    model = nn.Sequential(
        nn.Linear(NUM_FEATURES, NUM_HIDDEN), nn.ReLU(), nn.Linear(NUM_HIDDEN, NUM_CLASSES)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    loss = 0.0
    for _ in range(NUM_EPOCHS):
        for start in range(0, NUM_SAMPLES, BATCH_SIZE):
            batch = training.take(slice(start, start + BATCH_SIZE))
            if world_size > 1:
                loss = split_step(model, batch, rank, world_size)
            else:
                loss = whole_step(model, batch)
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0:
            with torch.no_grad():
                nn.functional.cross_entropy(model(validation.features), validation.labels)
    if rank == 0:
        print(f"loss {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
