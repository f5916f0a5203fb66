"""An MLP whose layers are FSDP units, with a stage for each thing that FSDP does to a unit."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from runners.experiments.fsdp_step import NUM_PARTS, Settings
from runners.meters.memory import local
from runners.ranks.rank import Rank
from runners.traces.schema import Setting
from runners.training.networks import description, flat, mlp
from runners.training.steps import (
    Tally,
    batch_of,
    num_correct,
    optimizer_for,
    scaled_lesson,
    shard_of,
    train_epoch,
    validate,
)
from runners.training.teacher import Samples


class Units(nn.Module):
    """Linear layers with a ReLU before each but the first; each layer is one FSDP unit.

    FSDP would gather a unit in its own hooks. It is asked to here, in the same place, so that a
    stage can be recorded around it; its hooks then find the unit gathered.
    """

    def __init__(self, rank: Rank[Settings], layers: list[nn.Linear]) -> None:
        super().__init__()
        self.rank = rank
        self.units = layers
        self.layers = nn.ModuleList(layers)  # which registers their parameters

    def forward(self, features: Tensor) -> Tensor:
        """Gather, compute and reshard one unit after another. Out: logits."""
        rank, activation = self.rank, features
        for layer in self.units:
            if layer is not self.units[0]:
                activation = torch.relu(activation)
            assert isinstance(layer, FSDPModule)
            with rank.stage(
                "gather", "gather the parameters of a unit", local(layer.weight)
            ) as out:
                layer.unshard()
                out(layer.weight)
            with rank.stage("forward", "run the unit on this rank's samples", activation) as out:
                activation = layer(activation)
                out(activation)
            with rank.stage("reshard", "free the gathered parameters", layer.weight) as out:
                out(local(layer.weight))
        return activation


def fsdp(rank: Rank[Settings]) -> None:
    """Each rank stores one part of every parameter and trains on its own half of the samples."""
    settings = rank.settings
    lesson = scaled_lesson(rank, low=-1.0)
    samples = shard_of(rank, lesson.training)
    with rank.stage("load", "take the samples of this rank", lesson.training.features) as out:
        out(samples.features)
    layers = [layer for layer in _model(rank) if isinstance(layer, nn.Linear)]
    model = Units(rank, layers)
    with (
        rank.phase("wrap"),
        rank.stage("shard", "keep one part of each parameter", flat(model)) as out,
    ):
        mesh = init_device_mesh(rank.device.type, (rank.world_size,))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        out(torch.cat([local(p).detach().reshape(-1) for p in model.parameters()]))
    optimizer = optimizer_for(rank, model)
    rank.watch(model, optimizer)
    for epoch in rank.epochs(settings.num_epochs):
        tally = Tally()
        for index in rank.steps(len(samples.labels) // settings.batch_size):
            _step(rank, model, optimizer, batch_of(samples, index, settings.batch_size), tally)
        loss, accuracy, count = tally.seen()
        graded = validate(model, lesson.validation)
        rank.epoch(epoch, loss=loss, accuracy=accuracy, num_samples=count, validation=graded)
    if not rank.is_metered:
        _predict(rank, model, lesson.validation)


def _step(
    rank: Rank[Settings],
    model: Units,
    optimizer: torch.optim.Optimizer,
    batch: Samples,
    tally: Tally,
) -> None:
    """Forward, backward with a reduce-scatter for each unit, and the update of the shards."""
    logits = model(batch.features)
    loss = nn.functional.cross_entropy(logits, batch.labels)
    weight = model.units[0].weight
    operation = "gather each unit again, differentiate, reduce-scatter its gradients"
    with rank.stage("backward", operation, logits) as out:
        loss.backward()
        assert weight.grad is not None
        out(local(weight.grad))
    with rank.stage("update", "update this rank's shards", local(weight.grad)) as out:
        optimizer.step()
        out(local(weight))
    optimizer.zero_grad()
    tally.add(loss.item(), logits, batch.labels)
    rank.step_loss(loss.item())
    rank.count_samples(len(batch.labels))


@torch.no_grad()
def _predict(rank: Rank[Settings], model: Units, validation: Samples) -> None:
    """Follow one validation batch through the units; every rank gathers, rank 0 reports."""
    batch = batch_of(validation, 0, rank.settings.batch_size)
    activation = batch.features
    shows = rank.rank == 0
    if shows:
        with rank.predict("input", "take one batch of validation samples", activation) as out:
            out(activation)
    for index, layer in enumerate(model.units):
        assert isinstance(layer, FSDPModule)
        if index:
            activation = torch.relu(activation)
        shard, before = local(layer.weight), activation
        layer.unshard()
        weight, activation = layer.weight, layer(before)
        if shows:
            facts: dict[str, Setting] = {
                "shard_bytes": shard.nbytes,
                "gathered_bytes": weight.nbytes,
            }
            with rank.predict(f"unit_{index}", "gather and run one unit", before, facts) as out:
                out(activation)
    if shows:
        _answer(rank, activation, batch)


def _answer(rank: Rank[Settings], logits: Tensor, batch: Samples) -> None:
    """Turn logits into probabilities, beside the true class of the first sample."""
    probabilities = torch.softmax(logits, dim=1)
    facts: dict[str, Setting] = {
        "predicted_class": int(probabilities[0].argmax()),
        "true_class": int(batch.labels[0]),
        "num_correct": num_correct(logits, batch.labels),
        "num_samples_shown": len(batch.labels),
    }
    with rank.predict("softmax", "turn logits into probabilities", logits, facts) as out:
        out(probabilities)


def single(rank: Rank[Settings]) -> None:
    """The oracle: one device, whose batches hold the samples of both ranks' batches."""
    lesson = scaled_lesson(rank, low=-1.0)
    whole = lesson.training
    model = _model(rank)
    optimizer = optimizer_for(rank, model)
    rank.watch(model, optimizer)
    each = rank.settings.batch_size // NUM_PARTS
    order = torch.arange(len(whole.labels)).view(NUM_PARTS, -1, each).transpose(0, 1).reshape(-1)
    samples = whole.take(order)
    for epoch in rank.epochs(rank.settings.num_epochs):
        loss, accuracy, count = train_epoch(
            rank, model, optimizer, samples, rank.settings.batch_size
        )
        graded = validate(model, lesson.validation)
        rank.epoch(epoch, loss=loss, accuracy=accuracy, num_samples=count, validation=graded)


def _model(rank: Rank[Settings]) -> nn.Sequential:
    """The MLP of a run's settings, equal on every rank."""
    widths = rank.settings.widths
    num_layers = len(widths) - 1
    held_by, sharded = [range(rank.world_size)] * num_layers, [rank.world_size > 1] * num_layers
    rank.describe(description(widths, held_by, sharded=sharded))
    torch.manual_seed(rank.seed)
    return mlp(widths, device=rank.device)


STRATEGIES = {"fsdp": fsdp, "single": single}
