"""What each meter costs a step, against the same loop without it.

Loops of one process, one thread, a few steps each in turn.

The heartbeat and the recorder cost what a timed pass costs beyond plain torch. The others stand
against the loop that they are added to: a `Rank`'s own for the memory meter and the profiler, plain
torch's for the rest. What a pass does once is repeated every step here, which is the most it costs.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from proofbook.runners.core.declared.experiment import Declaration, PassName
from proofbook.runners.core.meters.activity import ActivityMeter
from proofbook.runners.core.meters.kernel import KernelPeak
from proofbook.runners.core.meters.link import sent_payload_bytes
from proofbook.runners.core.ranks.heartbeat import Heart
from proofbook.runners.core.ranks.rank import Rank
from proofbook.runners.training.networks import mlp
from proofbook.runners.training.steps import EpochProgress, train_batch
from proofbook.runners.training.teacher import Samples
from tests.bench.ratio import Ratio, in_turn

ROUNDS = 15


@dataclass(frozen=True)
class Size:
    """A mlp's widths, the rows of a batch, and how many steps make a sample."""

    widths: tuple[int, ...]
    batch: int
    num_steps: int

    def made(self) -> tuple[nn.Module, torch.optim.Optimizer, Samples]:
        """A model, what updates it, and one batch."""
        model = mlp(self.widths)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        labels = torch.randint(self.widths[-1], (self.batch,))
        return model, optimizer, Samples(torch.randn(self.batch, self.widths[0]), labels)


SIZES = {
    "a tiny model": Size((10, 32, 3), 32, 100),
    "a large model": Size((2000, 2000, 2000, 10), 100, 1),
}


def bare_step(model: nn.Module, optimizer: torch.optim.Optimizer, rows: Samples) -> None:
    """A step in plain torch: what `train_batch` does, unmarked, its loss and accuracy counted."""
    logits = model(rows.features)
    loss = nn.functional.cross_entropy(logits, rows.labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    loss.item()
    (logits.argmax(1) == rows.labels).sum().item()


def _repeat(step: Callable[[], object], num_steps: int) -> None:
    for _ in range(num_steps):
        step()


def _ranked(heart: Path, size: Size, pass_name: PassName) -> tuple[Rank, Callable[[], None]]:
    """A rank, and a function that takes one step in it."""
    model, optimizer, rows = size.made()
    declaration = Declaration(strategy="single")
    rank = Rank(0, declaration, pass_name, torch.device("cpu"), Heart(heart))
    rank.watch(model, optimizer)
    return rank, lambda: train_batch(model, optimizer, rows, EpochProgress(rank, 1))


def _timed(heart: Path, size: Size) -> Callable[[], None]:
    """Steps as a timed pass takes them: beats, losses, and a clock around each."""
    rank, step = _ranked(heart, size, "timed")

    def steps() -> None:
        for _ in rank.steps(size.num_steps):
            step()

    return steps


def _metered(heart: Path, size: Size) -> Callable[[], None]:
    """Steps under the memory meter, which is entered and replayed once a sample."""
    rank, step = _ranked(heart, size, "metered")

    def steps() -> None:
        rank.start_memory()
        rank._kernel = None  # its peak is that of a rank's own process, which this is not
        _repeat(step, size.num_steps)
        rank.stop_memory()

    return steps


def _profiled(heart: Path, size: Size, num_steps: int) -> Callable[[], None]:
    """Steps under the activity meter: each is profiled by itself, as the timeline's is."""
    rank, step = _ranked(heart, size, "metered")

    def steps() -> None:
        for _ in range(num_steps):
            rank._activity = ActivityMeter(0, "cpu")
            with rank._activity:
                step()
            rank._activity = None

    return steps


def _marked(step: Callable[[], None]) -> None:
    peak = KernelPeak()
    step()
    peak.bytes()


def _counted(step: Callable[[], None]) -> None:
    sent_payload_bytes()
    step()
    sent_payload_bytes()


@contextmanager
def _unheard() -> Iterator[None]:
    """Keep off the terminal what the profiler writes at each start and stop."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _here(name: str, size: Size, folder: Path) -> Iterator[Ratio]:
    """What one process can measure by itself."""
    step = partial(bare_step, *size.made())
    few = max(1, size.num_steps // 10)  # a profiled step takes so much longer
    steps_taken = {"profiled": few, "unprofiled": few}
    loops: dict[str, Callable[[], object]] = {
        "bare": partial(_repeat, step, size.num_steps),
        "timed": _timed(folder / "timed", size),
        "unmetered": partial(_repeat, _ranked(folder / "un", size, "metered")[1], size.num_steps),
        "metered": _metered(folder / "metered", size),
        "unprofiled": partial(_repeat, _ranked(folder / "unprofiled", size, "metered")[1], few),
        "profiled": _profiled(folder / "profiled", size, few),
        "marked": partial(_repeat, partial(_marked, step), size.num_steps),
        "counted": partial(_repeat, partial(_counted, step), size.num_steps),
    }
    with _unheard():
        in_turn(loops, 2)  # settle caches and allocators
        seconds = in_turn(loops, ROUNDS)
    taken = {n: [s / steps_taken.get(n, size.num_steps) for s in seconds[n]] for n in seconds}
    for meter, with_it, without in (
        ("heartbeat and recorder", "timed", "bare"),
        ("memory meter", "metered", "unmetered"),
        ("activity meter", "profiled", "unprofiled"),
        ("the kernel's high-water mark", "marked", "bare"),
        ("link counters", "counted", "bare"),
    ):
        yield Ratio(f"{meter}, a step of {name}", "without", taken[with_it], taken[without])


def meters() -> Iterator[Ratio]:
    """Each meter against the same loop without it, for a tiny and a large model."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name, size in SIZES.items():
            yield from _here(name, size, Path(folder))
