"""What the recorder and the memory meter cost a step, against the same loop without either.

The three loops run in this process, one thread, a few steps each in turn: `bare` is plain torch,
`timed` goes through a `Rank` as timed passes do, `metered` has the memory meter entered.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from runners.experiment import PassName, RunPlan
from runners.heartbeat import Heart
from runners.networks import perceptron
from runners.rank import Rank
from runners.teacher import Rows
from runners.training import train_step
from tests.bench.ratio import Ratio, in_turn

ROUNDS = 15
SIZES = {  # name → widths, rows a batch, steps a sample
    "a tiny model": ((10, 32, 3), 32, 100),
    "a large model": ((2000, 2000, 2000, 10), 100, 1),
}


def _bare_step(model: nn.Module, optimizer: torch.optim.Optimizer, rows: Rows) -> None:
    logits = model(rows.features)
    loss = nn.functional.cross_entropy(logits, rows.labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    loss.item()
    (logits.argmax(1) == rows.labels).sum().item()


def _loop(
    folder: Path, widths: tuple[int, ...], batch: int, num_steps: int, pass_name: PassName | None
) -> Callable[[], None]:
    """A function that takes `num_steps` steps; without a pass name, in plain torch."""
    model = perceptron(widths)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = Rows(torch.randn(batch, widths[0]), torch.randint(widths[-1], (batch,)))
    if pass_name is None:
        return lambda: [_bare_step(model, optimizer, rows) for _ in range(num_steps)] and None
    heart = Heart(folder / f"{pass_name}-{num_steps}")
    rank = Rank(0, RunPlan(strategy="single"), pass_name, torch.device("cpu"), heart)

    def steps() -> None:
        if pass_name == "metered":
            rank.start_memory()
            rank._kernel = None  # its peak is that of a rank's own process, which this is not
        rank.watch(model, optimizer)
        for _ in range(num_steps):
            train_step(rank, model, optimizer, rows)
        rank.stop_memory()

    return steps


def ratios() -> list[Ratio]:
    """Timed and metered steps against bare ones, for a tiny and a large model."""
    torch.set_num_threads(1)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for size, (widths, batch, num_steps) in SIZES.items():
            loops = {
                name: _loop(Path(folder), widths, batch, num_steps, pass_name)
                for name, pass_name in (("bare", None), ("timed", "timed"), ("metered", "metered"))
            }
            in_turn(loops, 2)  # settle caches and allocators
            seconds = in_turn(loops, ROUNDS)
            step = {name: [s / num_steps for s in taken] for name, taken in seconds.items()}
            found += [
                Ratio(f"{name} step of {size}", "bare step", step[name], step["bare"])
                for name in ("timed", "metered")
            ]
    return found
