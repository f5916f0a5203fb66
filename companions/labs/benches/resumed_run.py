"""The bench of `resumed_run`: a training that is killed at three steps, beside one that is not."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from proofbook.companions.labs import laws
from proofbook.companions.labs.disks import shared_folder
from proofbook.companions.labs.grading import LabCase, Requirement, gradient_of, loaded, normal
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

LEARNING_RATE, WARM_UP, DROPOUT = 0.02, 20, 0.25
EPOCHS = 3
UNINTERRUPTED = "uninterrupted: "
ALLOWED = ("barrier", "object collective")


class Training:
    """A data-parallel training as a new process builds it; `starter.py` lists its state."""

    def __init__(self, case: LabCase, rank: int) -> None:
        self._samples, width = case.settings["samples"], case.settings["width"]
        num_samples = case.world_size * self._samples * case.settings["batches"]
        self._inputs = normal((num_samples, width), case.generator(0), torch.float32)
        self._targets = normal((num_samples, 1), case.generator(1), torch.float32)
        layers = nn.Linear(width, width), nn.Tanh(), nn.Dropout(DROPOUT), nn.Linear(width, 1)
        self.model = nn.Sequential(*layers)
        for place, weight in enumerate(self.model.parameters()):
            weight.data = normal(weight.shape, case.generator(2, place), weight.dtype) / width**0.5
        self.average = copy.deepcopy(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, _warm_up)
        self.shuffle = case.generator(3)
        self.order = torch.arange(num_samples)
        self.position, self.step = num_samples, 0  # behind the last sample: an epoch begins
        self.model[2].register_forward_hook(lambda _, __, kept: self._masks.append(kept != 0))
        self._masks: list[Tensor] = []
        torch.manual_seed(random.Random(f"{case.seed} {rank}").randrange(2**31))

    def advance(self) -> dict[str, Tensor]:
        """Train one step, and return what it used, and its loss."""
        if self.position == len(self.order):
            self.order, self.position = torch.randperm(self.position, generator=self.shuffle), 0
        own = self.order[self.position :][dist.get_rank() :: dist.get_world_size()][: self._samples]
        self.position += dist.get_world_size() * self._samples
        loss = mse_loss(self.model(self._inputs[own]), self._targets[own])
        self.optimizer.zero_grad()
        (loss / dist.get_world_size()).backward()
        for weight in self.model.parameters():
            dist.all_reduce(gradient_of(weight))
        rate = torch.tensor(self.optimizer.param_groups[0]["lr"])
        self.optimizer.step()
        self.schedule.step()
        self.step += 1
        for mean, weight in zip(self.average.parameters(), self.model.parameters(), strict=True):
            mean.data.lerp_(weight.data, 1 / self.step)
        used = {"samples": own, "masks": self._masks[-1], "learning rate": rate}
        return used | {"loss": loss.detach()}


def _warm_up(step: int) -> float:
    return (step + 1) / WARM_UP


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: the batches of an epoch, a rank's samples in each, the width."""
    sizes = draw.randrange(3, 6), draw.randrange(3, 6), draw.randrange(8, 16)
    return dict(zip(("batches", "samples", "width"), sizes, strict=True))


def _kills(case: LabCase) -> list[int]:
    """The steps after which the run is saved, within and at the end of epochs; no setting."""
    draw, batches = random.Random(f"kills {case.seed}"), case.settings["batches"]
    return [draw.randrange(1, batches), 2 * batches, 2 * batches + draw.randrange(1, batches)]


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, what each step used, and the weights at the end, of both runs."""
    folder, steps, kills = shared_folder(), EPOCHS * case.settings["batches"], _kills(case)
    whole = Training(case, rank.rank)
    uninterrupted = [whole.advance() for _ in range(steps)]
    by_name: dict[str, Tensor] = {}
    with rank.metered():
        run = Training(case, rank.rank)
        for start, end in zip([0, *kills], [*kills, steps], strict=True):
            for step in range(start, end):
                for kind, held in run.advance().items():
                    name = f"{kind} of step {step - start + 1} after the kill at step {start}"
                    by_name |= {name: held, UNINTERRUPTED + name: uninterrupted[step][kind]}
            if end < steps:
                run = _resumed(run, folder / f"{end}", program, case)
    for kind in ("model", "average"):
        for before, training in (("", run), (UNINTERRUPTED, whole)):
            weights = getattr(training, kind).state_dict().values()
            by_name[f"{before}weights of `{kind}`"] = torch.cat([w.flatten() for w in weights])
    return by_name


def _resumed(run: Training, folder: Path, program: ModuleType, case: LabCase) -> Training:
    """Save a run, go on for a step that is lost, and restore another by a module of its own."""
    folder.mkdir(exist_ok=True)
    program.save(folder, run)
    run.advance()
    dist.barrier()
    restored = Training(case, dist.get_rank())
    loaded(Path(str(program.__file__))).load(folder, restored)
    return restored


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """Nothing: a case is compared with its own run that is never killed."""
    return {}


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirement: after each kill, all that steps use is that of the run without one."""
    return [laws.same_to_the_bit(UNINTERRUPTED)]
