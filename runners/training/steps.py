"""What the experiments share: samples by a run's settings, and one batch after another, marked."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from proofbook.runners.closed_forms.training_settings import HiddenLayerSettings, TeacherSettings
from proofbook.runners.training.networks import description, grade, mlp
from proofbook.runners.training.rank import Rank, parameter_digest
from proofbook.runners.training.teacher import Lesson, Samples, scaled, teach

T = TypeVar("T")


def lesson_for(rank: Rank[TeacherSettings]) -> Lesson:
    """The `Lesson` that a run's settings ask of the seeded teacher: not yet scaled, on the CPU."""
    settings = rank.settings
    return teach(
        rank.seed,
        num_samples=settings.num_samples,
        num_validation_samples=settings.num_validation_samples,
        num_features=settings.num_features,
        num_classes=settings.num_classes,
        temperature=settings.teacher_temperature,
        dtype=getattr(torch, getattr(settings, "dtype", "float32")),
    )


def scaled_lesson(rank: Rank[TeacherSettings], low: float = 0.0) -> Lesson:
    """The `Lesson` on this rank's device, features scaled to [low, 1] by the training samples."""
    lesson = lesson_for(rank)

    def prepared(samples: Samples) -> Samples:
        features = low + (1 - low) * scaled(samples, lesson.training.features).features
        moved = Samples(features, samples.labels).to(rank.device)
        rank.inputs(moved.features, moved.labels)
        return moved

    return Lesson(prepared(lesson.training), prepared(lesson.validation))


def shard_of(rank: Rank, samples: Samples) -> Samples:
    """This rank's equal part of the samples, in their order; one device has all of them."""
    size = len(samples.labels) // rank.world_size
    return samples.take(slice(rank.rank * size, (rank.rank + 1) * size))


def batch_of(samples: Samples, index: int, size: int) -> Samples:
    """The batch of this index, `size` samples."""
    return samples.take(slice(index * size, (index + 1) * size))


def mlp_for(rank: Rank[HiddenLayerSettings], seed: int | None = None) -> nn.Sequential:
    """The MLP of the settings, from the run's seed or the `seed` given; describe it on the rank."""
    settings, widths = rank.settings, rank.settings.widths
    dtype = getattr(torch, getattr(settings, "dtype", "float32"))
    rank.describe(description(widths, rank.world_size, dtype))
    torch.manual_seed(rank.seed if seed is None else seed)
    return mlp(widths, dtype=dtype, device=rank.device)


def mlp_of_rank(rank: Rank[HiddenLayerSettings]) -> nn.Sequential:
    """The same network from a seed of this rank's own, as careless scripts build it."""
    model = mlp_for(rank, rank.seed + rank.rank)
    if rank.world_size > 1:
        rank.outcome.first_parameter_digest = parameter_digest(model.parameters())
    return model


def stack_for(
    rank: Rank[Any],
    build: Callable[..., nn.Sequential] = mlp,
    *,
    is_sharded: bool = False,
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """A stack of the settings' `widths`, equal and whole on all ranks; describe it on the rank."""
    widths = rank.settings.widths
    rank.describe(description(widths, rank.world_size, dtype, is_sharded))
    torch.manual_seed(rank.seed)
    return build(widths, device=rank.device).to(dtype)


def replica_of(rank: Rank[Any], model: nn.Module, **options: Any) -> DistributedDataParallel:
    """A model as this rank's replica under DDP, which averages gradients in backward."""
    with rank.phase("wrap"):
        return DistributedDataParallel(model, **options)


def shard_layers(rank: Rank[Any], stack: nn.Module) -> None:
    """Let each linear layer of a stack be an FSDP unit, the stack their root."""
    with rank.phase("wrap"):
        mesh = init_device_mesh(rank.device.type, (rank.world_size,))
        for layer in stack.children():
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(stack, mesh=mesh)


def random_samples(
    rank: Rank[Any], num_samples: int, seed: int | None = None
) -> tuple[Tensor, Tensor]:
    """Random features (num_samples, first width) and labels (num_samples,) for a stack of `widths`.

    They are this rank's alone, unless a `seed` says that ranks share them.
    """
    first, *_, last = rank.settings.widths
    with rank.phase("samples"):
        source = torch.Generator().manual_seed(rank.seed + rank.rank if seed is None else seed)
        features = torch.randn((num_samples, first), generator=source).to(rank.device)
        labels = torch.randint(0, last, (num_samples,), generator=source).to(rank.device)
        rank.inputs(features, labels)
    return features, labels


def optimizer_for(rank: Rank, model: nn.Module) -> torch.optim.Optimizer:
    """The model's optimizer: Adam where the run's settings say so, else SGD with their momentum."""
    settings = rank.settings
    if getattr(settings, "optimizer", "sgd") == "adam":
        return torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    return torch.optim.SGD(
        model.parameters(), lr=settings.learning_rate, momentum=settings.momentum
    )


class EpochProgress:
    """One pass over a rank's samples, while its loop runs: losses and right answers so far."""

    def __init__(self, rank: Rank, index: int) -> None:
        self._rank, self.index = rank, index
        self.num_samples = 0
        self._losses: list[float] = []
        self._num_correct = 0

    def batches(self, samples: Samples, size: int) -> Iterator[Samples]:
        """One batch of `size` samples after another, each a step of the rank."""
        for index in self._rank.steps(len(samples.labels) // size):
            yield batch_of(samples, index, size)

    def add(
        self, loss: float | Tensor, logits: Tensor, labels: Tensor, num_own: int | None = None
    ) -> None:
        """Count a batch for the epoch and the rank: its mean loss, and samples classified rightly.

        `num_own` samples this rank has computed itself; all by default.
        """
        value = float(loss)
        self._losses.append(value)
        self._num_correct += int((logits.argmax(1) == labels).sum())
        self.num_samples += len(labels)
        self._rank.step_loss(value)
        self._rank.count_samples(len(labels) if num_own is None else num_own)

    def close(
        self,
        validation: tuple[int, float, float] | None = None,
        parameters: Iterable[Tensor] | None = None,
    ) -> float | None:
        """Record the epoch, with a digest of `parameters` if given; its mean loss, if any."""
        loss = sum(self._losses) / len(self._losses) if self._losses else None
        self._rank.epoch(
            self.index,
            loss=loss,
            accuracy=self._num_correct / self.num_samples if self.num_samples else None,
            num_samples=self.num_samples,
            validation=validation,
            parameters=parameters,
        )
        return loss


def epochs(
    rank: Rank,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    validation: Samples,
    line: str = "",
    *,
    is_sharded: bool = False,
) -> Iterator[EpochProgress]:
    """Yield an `EpochProgress` for each epoch; after its loop, validate, record and print it.

    Replicas give their digest at the start and after each epoch, and rank 0 validates; of a model
    `is_sharded`, every rank does, since each has to gather, and none gives a digest. Rank 0 prints
    the line, with `{epoch}`, `{loss}`, `{validation_loss}` and `{validation_accuracy}` filled in.
    """
    rank.watch(model, optimizer)
    if not rank.is_metered and not is_sharded:
        rank.outcome.start_parameter_digest = parameter_digest(model.parameters())
    for index in rank.epochs(rank.settings.num_epochs):
        epoch = EpochProgress(rank, index)
        yield epoch
        validates = is_sharded or (rank.rank == 0 and not rank.is_metered)
        graded = validate(model, validation) if validates else None
        loss = epoch.close(graded, None if is_sharded else model.parameters())
        if graded and line:
            _, validation_loss, validation_accuracy = graded
            known = {"validation_loss": validation_loss, "validation_accuracy": validation_accuracy}
            print(line.format(epoch=index, loss=loss, **known))


def forward_backward(
    model: nn.Module, samples: Samples, num_parts: int = 1
) -> tuple[Tensor, Tensor]:
    """The logits and mean loss of samples, after backward of that loss divided by `num_parts`.

    So the gradients of equal parts add up to that of the mean loss of the batch.
    """
    logits = model(samples.features)
    loss = nn.functional.cross_entropy(logits, samples.labels)
    (loss / num_parts if num_parts > 1 else loss).backward()
    return logits, loss


def train_batch(
    model: nn.Module, optimizer: torch.optim.Optimizer, samples: Samples, epoch: EpochProgress
) -> None:
    """Take a step on one batch: forward, backward, update; add its loss and logits to the epoch."""
    logits, loss = forward_backward(model, samples)
    optimizer.step()
    optimizer.zero_grad()
    epoch.add(loss, logits, samples.labels)


def train(
    rank: Rank, model: nn.Module, lesson: Lesson, line: str = "", *, is_sharded: bool = False
) -> None:
    """Train `model` on a `Lesson` for the settings' epochs; other arguments are of `epochs`."""
    optimizer = optimizer_for(rank, model)
    for epoch in epochs(rank, model, optimizer, lesson.validation, line, is_sharded=is_sharded):
        for batch in epoch.batches(lesson.training, rank.settings.batch_size):
            train_batch(model, optimizer, batch, epoch)


def step_on_samples(rank: Rank[Any], forward: Callable[[Tensor], Tensor]) -> Callable[[], float]:
    """A function: forward and backward on this rank's random batch; it returns the mean loss.

    `forward` is a model, or calls its parts. Each call leaves gradients.
    """
    features, labels = random_samples(rank, rank.settings.batch_size)

    def step() -> float:
        with rank.phase("forward"):  # where only parts are called, no hook tells
            loss = nn.functional.cross_entropy(forward(features), labels)
        loss.backward()
        return loss.item()

    return step


def sgd_steps(rank: Rank[Any], model: nn.Module, step: Callable[[], T]) -> T:
    """Take a run's steps: `step()`, which leaves gradients, then SGD; its last result."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rank.settings.learning_rate)
    rank.watch(model, optimizer)
    for _ in rank.steps(rank.settings.num_steps):
        loss = step()
        optimizer.step()
        optimizer.zero_grad()
    return loss


def validate(model: nn.Module, samples: Samples) -> tuple[int, float, float]:
    """Samples, loss and accuracy on samples never trained on."""
    with torch.no_grad():
        loss, accuracy = grade(model(samples.features), samples.labels)
    return len(samples.labels), loss, accuracy


def of_all_ranks(rank: Rank, value: T) -> list[T]:
    """The value of every rank, on every rank; sent as an object, which any backend carries."""
    values = [value] * rank.world_size
    if rank.world_size > 1:
        dist.all_gather_object(values, value)
    return values


def num_distinct(rank: Rank, tensors: Iterable[Tensor]) -> int:
    """How many different sets of these tensors the ranks hold."""
    return len(set(of_all_ranks(rank, parameter_digest(tensors))))
