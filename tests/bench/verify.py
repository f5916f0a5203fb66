"""What watching costs a step: a small transformer on two ranks, with and without `verify`.

Launches with and without take turns. Each step is timed by the script itself, between barriers; the
first of a launch, in which torch allocates and DDP builds its buckets, is left out.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from tests.bench.ratio import Ratio
from tests.processes import ROOT

ROUNDS, STEPS = 3, 8
WORDS, WIDTH, LENGTH, SAMPLES = 256, 128, 64, 8
VERIFY = ["runners", "verify", "--ranks", "2", "--seconds", "0"]
LAUNCHERS = {
    "unwatched": ["torch.distributed.run", "--nproc-per-node", "2"],
    "watched": [*VERIFY, "--steps", str(STEPS)],
}


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
    body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), body, nn.Linear(WIDTH, WORDS))


def _train(strategy: str, file: Path) -> None:
    """A script as people write it; writes the seconds of each step."""
    dist.init_process_group("gloo")
    model: Any = _model()
    if strategy == "FSDP2":
        for layer in model[1].layers:
            fully_shard(layer)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    seconds = []
    for step in range(STEPS):
        torch.manual_seed(2 * step + dist.get_rank())
        words = torch.randint(WORDS, (SAMPLES, LENGTH + 1))
        dist.barrier()
        started = time.perf_counter()
        optimizer.zero_grad()
        logits = model(words[:, :-1])
        cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        dist.barrier()
        seconds.append(time.perf_counter() - started)
    if dist.get_rank() == 0:
        with file.open("a") as lines:
            lines.writelines(f"{one}\n" for one in seconds[1:])
    dist.destroy_process_group()


def _measured(strategy: str, folder: Path) -> dict[str, list[float]]:
    """Seconds of steps by launcher."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    own = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    for _ in range(ROUNDS):
        for name, launcher in LAUNCHERS.items():
            words = [sys.executable, "-m", *launcher, __file__, strategy, str(folder / name)]
            done = run(words, env=own, cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(
                    f"{strategy}, {name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
                )
    return {
        name: [float(line) for line in (folder / name).read_text().split()] for name in LAUNCHERS
    }


def verify() -> Iterator[Ratio]:
    """A watched step against an unwatched one, under DDP and under FSDP2."""
    for strategy in ("DDP", "FSDP2"):
        with tempfile.TemporaryDirectory() as folder:
            seconds = _measured(strategy, Path(folder))
        watched, unwatched = seconds["watched"], seconds["unwatched"]
        yield Ratio(f"a watched step of {strategy}", "unwatched", watched, unwatched)


if __name__ == "__main__":
    _train(sys.argv[1], Path(sys.argv[2]))
