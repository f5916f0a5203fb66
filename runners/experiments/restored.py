"""One training, stopped at twelve points and restored without a part of its state: what differs?

Ranks train with dropout, Adam, a schedule, a loss scale and moving averages, in epochs that are
shuffled anew. At each point every rank writes its whole state to a file. Then it builds everything
anew, loads the file without what is left out, and trains to the end beside its uninterrupted run.

    python -m runners run restored
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import partial
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from proofbook.runners.api import Count, CountOrZero, Declaration, Factor, RunSettings, Setting
from proofbook.runners.training.rank import Rank, parameter_digest

# What a log and its checkpoints show of a microbatch or an update, in the order in which it arises.
SHOWN = ("samples", "loss", "norm", "rate", "weights", "averages", "step")
Record = dict[str, Any]
PARTS = (
    *("model", "optimizer", "schedule", "position", "order", "scaler", "averages", "step"),
    *("gradients", "generator_0", "generator_1", "generators", "own_generators"),
)


class Training:
    """All that changes while a rank trains; `state` holds it, and `load` sets it."""

    def __init__(self, rank: int, settings: Settings, seed: int) -> None:
        self.rank, self.settings, self.seed = rank, settings, seed
        torch.manual_seed(seed)
        width, hidden = settings.width, 4 * settings.width
        ends = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.model = nn.Sequential(ends[0], nn.GELU(), nn.Dropout(settings.dropout), ends[1])
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.learning_rate)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._of_full_rate)
        # The scale doubles every few updates, and halves where a gradient in fp16 overflows.
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=settings.growth_interval)
        self.averages = copy.deepcopy(self.model)
        self.num_steps = self.epoch = self.position = 0
        torch.manual_seed(seed + 1 + rank)  # ranks drop different values
        numbers = torch.Generator().manual_seed(seed)
        self.samples = torch.randn(settings.num_samples, width, generator=numbers)

    def _of_full_rate(self, num_updates: int) -> float:
        """Warm-up, then a straight line to zero."""
        settings, warmup = self.settings, self.settings.num_warmup
        count = settings.num_microbatches // settings.accumulation
        return min((num_updates + 1) / warmup, (count - num_updates) / (count - warmup))

    def drawn(self) -> list[int]:
        """The numbers of the rank's next samples, in the order of the epoch."""
        settings = self.settings
        source = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(settings.num_samples, generator=source)
        own = order[self.rank :: settings.world_size].view(-1, settings.microbatch)
        numbers: list[int] = own[self.position].tolist()
        self.position += 1
        if self.position == len(own):
            self.epoch, self.position = self.epoch + 1, 0
        return numbers

    def microbatches(self, first: int, count: int) -> Iterator[Record]:
        """Train, and yield what each microbatch shows; the last one of an update shows more."""
        for number in range(first, count):
            samples = self.drawn()
            inputs = self.samples[samples]
            with torch.autocast("cpu", torch.float16):
                outputs = self.model(inputs)
            loss = nn.functional.mse_loss(outputs.float(), inputs.flip(1).tanh())
            self.scaler.scale(loss / self.settings.accumulation).backward()
            dist.all_reduce(mean := loss.detach() / self.settings.world_size)
            record = {"samples": samples, "loss": mean.item()}
            if (number + 1) % self.settings.accumulation == 0:
                record |= self._updated()
            yield record

    def _updated(self) -> Record:
        """Update by the mean gradient of all ranks, and the moving averages after it."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        for gradient in gradients:
            dist.all_reduce(gradient)
            gradient.div_(self.settings.world_size)
        self.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.get_total_norm(gradients)
        rate = self.optimizer.param_groups[0]["lr"]
        self.scaler.step(self.optimizer)  # not where a gradient has overflowed
        self.scaler.update()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.num_steps += 1
        # A warm-up of the averages, too: at first they forget faster.
        weight = max(1 - self.settings.kept, 9 / (10 + self.num_steps))
        pairs = zip(self.averages.parameters(), self.model.parameters(), strict=True)
        for average, parameter in pairs:
            average.detach().lerp_(parameter.detach(), weight)
        weights, averages = (parameter_digest(m.parameters()) for m in (self.model, self.averages))
        recorded = {"norm": norm.item(), "rate": rate, "weights": weights, "averages": averages}
        return recorded | {"step": self.num_steps}

    def state(self) -> dict[str, Any]:
        """Everything, by the name under which it can be left out."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "averages": self.averages.state_dict(),
            "gradients": [p.grad for p in self.model.parameters()],  # of a begun update
            "position": self.position,
            "order": self.epoch,
            "step": self.num_steps,
            "generators": torch.get_rng_state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Set what the state has, and leave the rest as it is in a new training."""
        if "model" in state:
            self.model.load_state_dict(state["model"])
        self.averages = copy.deepcopy(self.model)  # begins with the weights, as averages do
        for name in ("optimizer", "schedule", "scaler", "averages"):
            if name in state:
                getattr(self, name).load_state_dict(state[name])
        for parameter in self.model.parameters():
            parameter.grad = state["gradients"].pop(0) if "gradients" in state else None
        self.position, self.epoch = state.get("position", 0), state.get("order", 0)
        self.num_steps = state.get("step", 0)
        if "generators" in state:
            torch.set_rng_state(state["generators"])


def restored(rank: Rank[Settings]) -> None:
    """Stop at each point, restore without what is left out, and record what differs first."""
    settings = rank.settings
    build = partial(Training, rank.rank, settings, rank.seed)
    training, count, whole, written = build(), settings.num_microbatches, [], {}
    for number, record in enumerate(training.microbatches(0, count), start=1):
        whole.append(record)
        if number in settings.points:
            written[number] = rank.scratch / f"{number}-{rank.rank}.pt"
            torch.save(training.state(), written[number])
    firsts, steps, ends, apart = [], [], [], [0.0]
    last = slice(count - settings.num_last, None)
    losses = [record["loss"] for record in whole[last]]
    for point, file in written.items():
        training = build()
        training.load(_kept(settings.left_out, rank.rank, file))
        again = list(training.microbatches(point, count))
        first, step = _first_difference(whole, point, again)
        firsts.append(first or "nothing")
        steps.append(step)
        ends.append(again[-1]["weights"] == whole[-1]["weights"])
        other_losses = [record["loss"] for record in (whole[:point] + again)[last]]
        apart.append(abs(fmean(other_losses) / fmean(losses) - 1))
    dist.barrier()
    rank.measure("firsts", firsts)
    rank.measure("first_steps", steps)
    rank.measure("num_different", len(firsts) - firsts.count("nothing"), unit="points")
    rank.measure("num_end_equal", sum(ends), unit="points")
    rank.measure("loss_difference", max(apart), unit="share")  # of the mean over the last ones
    for name in SHOWN:
        rank.measure(f"num_{name}_first", firsts.count(name), unit="points")
    rank.measure("num_skipped", [record.get("norm") for record in whole].count(inf), unit="steps")


def _kept(left_out: str, rank: int, file: Path) -> dict[str, Any]:
    """The saved state of a rank without what is left out, on the ranks that leave it out."""
    state: dict[str, Any] = torch.load(file)
    if left_out in ("generator_0", "generator_1"):
        left_out = "generators" if left_out.endswith(str(rank)) else "nothing"
    if left_out == "own_generators":  # every rank loads the first one's
        first = file.with_name(file.name.replace(f"-{rank}.", "-0."))
        dist.barrier()  # it has been written
        state["generators"] = torch.load(first)["generators"]
    state.pop(left_out, None)
    return state


def _first_difference(whole: list[Record], point: int, again: list[Record]) -> tuple[str, int]:
    """What differs first, in the order of `SHOWN`, and in which update, from 1; or nothing, 0."""
    per_update = len(whole) // whole[-1]["step"]
    for number, other in enumerate(again, start=point):
        for name in SHOWN:
            if str(whole[number].get(name)) != str(other.get(name)):  # as words: nan equals nan
                return name, number // per_update - point // per_update + 1
    return "", 0


QUESTION = "Which part of the state can a training lose, and what shows it first?"


class Settings(RunSettings):
    """A small network, its samples, and what a restored training does not find."""

    left_out: str = "nothing"  # or one of `PARTS`
    width: Count = 16
    dropout: Factor = 0.1
    num_samples: Count = 160
    microbatch: Count = 4
    accumulation: Count = 2
    num_epochs: Count = 3
    num_warmup: Count = 5
    learning_rate: Factor = 0.01
    growth_interval: Count = 4
    kept: Factor = 0.9  # of the moving averages, at an update
    num_last: Count = 20  # microbatches at the end, of which a mean loss is taken
    num_points: Count = 12
    points_seed: CountOrZero = 7

    @property
    def num_microbatches(self) -> int:
        """Of a rank, in all epochs."""
        return self.num_epochs * self.num_samples // (self.world_size * self.microbatch)

    @property
    def points(self) -> list[int]:
        """After how many microbatches the training is stopped: drawn, and the end of an epoch."""
        between = self.num_microbatches // self.num_epochs
        others = [n for n in range(1, self.num_microbatches - 1) if n != between]
        drawn = random.Random(self.points_seed).sample(others, self.num_points - 1)
        return sorted([between, *drawn])

    def closed_forms(self) -> dict[str, Setting]:
        """By name: where the training is stopped, and at how many points in which situation."""
        in_epoch = self.num_microbatches // self.num_epochs
        return {
            "points": self.points,
            "num_begun_updates": sum(p % self.accumulation != 0 for p in self.points),
            "num_within_epochs": sum(p % in_epoch != 0 for p in self.points),
            "num_after_first_epoch": sum(p >= in_epoch for p in self.points),
        }


without = partial(Declaration, "restored", 2, passes=("timed",), only_on_cpu=True)
RUNS = {
    "complete": without(Settings()),
    **{f"without_{part}": without(Settings(left_out=part)) for part in PARTS},
}
TRIED_WITH = {"*": {"num_points": 4, "num_epochs": 2}}
