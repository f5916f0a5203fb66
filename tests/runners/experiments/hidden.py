"""Memory that the meter cannot see, and memory that a process touches once: the tests' own."""

import mmap

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from proofbook.runners.core.declared.experiment import Declaration

QUESTION = "Does the check of the memory meter find what the meter misses?"
WIDTH = 1400  # large beside what a process touches once
MODEL_BYTES = 4 * 2 * (WIDTH * WIDTH + WIDTH)  # parameters and gradients
ONCE_BYTES = 40 << 20
_touched_once = []


def _train(rank):
    with rank.phase("build"):
        torch.manual_seed(rank.seed)
        model = nn.Linear(WIDTH, WIDTH)
    rank.watch(model)
    samples = torch.randn(8, WIDTH)
    for _ in rank.steps(3):
        with rank.phase("forward"):
            loss = model(samples).square().mean()
        with rank.phase("backward"):
            loss.backward()
        model.zero_grad()


def honest(rank):
    _train(rank)


def loads(rank):
    """The first call fills what the process keeps for its whole life, as an import does."""
    if not _touched_once:
        _touched_once.append(bytearray(b"1") * ONCE_BYTES)
    _train(rank)


def maps(rank):
    """Pages straight from the kernel, held while the model trains."""
    with mmap.mmap(-1, MODEL_BYTES) as pages:
        pages.write(b"1" * MODEL_BYTES)
        _train(rank)


def arrays(rank):
    """An array of numpy's, held while the model trains, by the last rank alone."""
    held = np.ones(MODEL_BYTES * (rank.rank == rank.world_size - 1), dtype=np.uint8)
    _train(rank)
    assert held.all()


def blinded(rank):
    """A tensor made where the meter does not look."""
    with _disable_current_modes():
        held = torch.ones(MODEL_BYTES // 4)
    _train(rank)
    assert held.all()


METERED = {"passes": ("metered",)}
RUNS = {
    "honest": Declaration("honest", 1, **METERED),
    "loads": Declaration("loads", 1, **METERED),
    "maps": Declaration("maps", 1, **METERED),
    "arrays": Declaration("arrays", 2, **METERED),
    "blinded": Declaration("blinded", 1, **METERED),
}
