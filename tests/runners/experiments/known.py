"""Runs whose measured numbers are known beforehand: no size is round, and ranks differ."""

import os
import time

import torch
import torch.distributed as dist

from proofbook.runners.core.declared.experiment import Declaration
from proofbook.runners.training import steps
from proofbook.runners.training.teacher import Lesson, Samples
from proofbook.runners.training.transfers import seconds_alone

QUESTION = "Do meters measure what is there?"
NUM_SAMPLES = 8, 20  # of each rank
TRAINING = {"num_epochs": 2, "batch_size": 4, "learning_rate": 0.1, "momentum": 0.5}
NUM_HELD = 10_003  # values in bf16: more bytes than all activations of a step
NAP_SECONDS = 0.03
LATE_SECONDS = 1.0


def samples(seed, num):
    """Samples that are larger, the later they come: so are the losses of their batches."""
    source = torch.Generator().manual_seed(seed)
    features = torch.randn(num, 13, generator=source) * torch.arange(1.0, num + 1)[:, None]
    return Samples(features, torch.randint(0, 7, (num,), generator=source))


def learn(rank):
    """Each rank trains a model of its own, on its own samples, with what it may use of a core."""
    lesson = Lesson(samples(rank.rank, NUM_SAMPLES[rank.rank]), samples(9, 11))
    with rank.stage("samples", "take") as out:
        out(lesson.training.labels)
    steps.train(rank, torch.nn.Linear(13, 7), lesson)
    rank.measure("capability", torch.backends.cpu.get_cpu_capability())
    rank.measure("products", os.environ.get("MKL_CBWR", "any"))


def step(rank):
    """In each step rank 0 sleeps for longer than in the one before, while rank 1 waits for it."""
    model, num = torch.nn.Linear(13, 7), NUM_SAMPLES[rank.rank]
    model.register_buffer("count", torch.ones(9, dtype=torch.uint8))
    optimizer = torch.optim.Adam(model.parameters())
    rank.watch(model, optimizer)
    with rank.phase("data"):
        features = torch.ones(num, 13, dtype=torch.float64).float()
        labels = torch.zeros(num, dtype=torch.int64)
        rank.inputs(features, labels)
    start = time.monotonic()
    for index in rank.steps(7):
        if rank.rank == 0:
            with rank.phase("sleep"):
                time.sleep(NAP_SECONDS * index)
            rank.send(torch.ones(5, dtype=torch.bfloat16), 1)
        else:
            rank.receive((5,), 0, torch.bfloat16)
            with rank.phase("wait", computes=False):
                time.sleep(NAP_SECONDS)
        torch.nn.functional.cross_entropy(model(features), labels).backward()
        optimizer.step()
        _exchange(rank, model, features)
        optimizer.zero_grad()
    rank.measure("loop_seconds", time.monotonic() - start)
    with rank.predict("wait", "sleep", features) as out:
        time.sleep(NAP_SECONDS)
        out(model.count)
    other = rank.rank + rank.is_metered  # of another rank or pass, whose times nobody wants
    rank.measure_seconds("known", [0.001 * k * k + other for k in range(401)])


def _exchange(rank, model, features):
    with rank.phase("exchange"), rank.stage("exchange", "pass on", features) as out:
        buckets = [p.grad.clone() for p in model.parameters()]
        for bucket in buckets:
            dist.all_reduce(bucket)
        dist.broadcast(torch.ones(3, dtype=torch.int64), 1)
        time.sleep(NAP_SECONDS)
        held = torch.zeros(NUM_HELD + rank.rank, dtype=torch.bfloat16)
        held[1].fill_(5)
        out(held)


def late(rank):
    """Rank 1 comes late to a collective."""
    if rank.rank:
        time.sleep(LATE_SECONDS)
    taken = seconds_alone(rank, lambda: dist.all_reduce(torch.ones(3)))
    rank.measure_seconds("alone", [taken])


RUNS = {
    "learn": Declaration("learn", 2, TRAINING, keeps_steps=True, passes=("timed",)),
    "late": Declaration("late", 2, passes=("timed",)),
    "step": Declaration("step", 2, has_timeline=True),
}
