"""One training step under FSDP, followed unit by unit: gather, compute, reshard, reduce-scatter.

`fsdp` trains a small MLP over two ranks, each of its layers an FSDP unit; `single` trains the same
model on one device with the global batch, as an oracle.

    python -m runners run fsdp_step
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from proofbook.runners.api import Count, Declaration, Factor, FactorOrZero, closed_form
from proofbook.runners.closed_forms.shape import FLOAT_BYTES, mlp_parameters
from proofbook.runners.closed_forms.training_settings import TeacherSettings
from proofbook.runners.training import steps
from proofbook.runners.training.networks import flat
from proofbook.runners.training.rank import Rank, local
from proofbook.runners.training.teacher import Lesson, Samples


def fsdp(rank: Rank[Settings]) -> None:
    """Build and train an MLP, each layer an FSDP unit, on this rank's samples; record stages."""
    lesson = steps.scaled_lesson(rank, low=-1.0)
    samples = steps.shard_of(rank, lesson.training)
    with rank.stage("load", "take the samples of this rank", lesson.training.features) as out:
        out(samples.features)
    layers = [m for m in steps.stack_for(rank, is_sharded=True) if isinstance(m, nn.Linear)]
    model = Units(rank, layers)
    keep = "keep one part of each parameter"
    with rank.phase("wrap"), rank.stage("shard", keep, flat(model)) as out:
        mesh = init_device_mesh(rank.device.type, (rank.world_size,))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        out(torch.cat([local(p).detach().reshape(-1) for p in model.parameters()]))
    optimizer = steps.optimizer_for(rank, model)
    for epoch in steps.epochs(rank, model, optimizer, lesson.validation, is_sharded=True):
        for batch in epoch.batches(samples, rank.settings.batch_size):
            model.step(optimizer, batch, epoch)


class Units(nn.Module):
    """Linear layers with a ReLU before each but the first; each layer is one FSDP unit.

    FSDP would gather a unit in its own hooks. It is asked to here, in the same place, so that a
    stage can be recorded around it; its hooks then find the unit gathered.
    """

    def __init__(self, rank: Rank[Settings], layers: list[Any]) -> None:
        super().__init__()
        self.rank, self.units = rank, layers
        self.layers = nn.ModuleList(layers)  # which registers their parameters

    def forward(self, features: Tensor) -> Tensor:
        """Logits (samples, classes): gather, run, reshard each unit in turn; record as stages."""
        stage, activation = self.rank.stage, features
        for index, layer in enumerate(self.units):
            activation = torch.relu(activation) if index else activation
            shard = local(layer.weight)
            with stage("gather", "gather the parameters of a unit", shard) as out:
                layer.unshard()
                out(layer.weight)
            with stage("forward", "run the unit on this rank's samples", activation) as out:
                activation = layer(activation)
                out(activation)
            with stage("reshard", "free the gathered parameters", layer.weight) as out:
                out(local(layer.weight))
        return activation

    def step(
        self, optimizer: torch.optim.Optimizer, batch: Samples, epoch: steps.EpochProgress
    ) -> None:
        """Take a step on a batch: forward, backward, update, as stages; add it to the epoch."""
        stage, weight, logits = self.rank.stage, self.units[0].weight, self(batch.features)
        loss = nn.functional.cross_entropy(logits, batch.labels)
        operation = "gather each unit again, differentiate, reduce-scatter its gradients"
        with stage("backward", operation, logits) as out:
            loss.backward()
            out(local(weight.grad))
        with stage("update", "update this rank's shards", local(weight.grad)) as out:
            optimizer.step()
            out(local(weight))
        optimizer.zero_grad()
        epoch.add(loss, logits, batch.labels)


def single(rank: Rank[Settings]) -> None:
    """Build and train the MLP on one device, as the oracle; a batch holds both ranks' samples."""
    lesson = steps.scaled_lesson(rank, low=-1.0)
    whole, model = lesson.training, steps.stack_for(rank)
    size = rank.settings.batch_size
    order = torch.arange(len(whole.labels)).view(2, -1, size // 2).transpose(0, 1).reshape(-1)
    steps.train(rank, model, Lesson(whole.take(order), lesson.validation), is_sharded=True)


QUESTION = "What does a rank hold and communicate at each point of a training step under FSDP?"


class Settings(TeacherSettings):
    """An MLP of a few linear layers, trained by SGD with momentum."""

    num_samples: Count = 2048
    num_validation_samples: Count = 512
    num_features: Count = 24
    num_classes: Count = 4
    teacher_temperature: Factor = 0.15
    width: Count = 128
    batch_size: Count = 16
    num_epochs: Count = 5
    learning_rate: Factor = 0.05
    momentum: FactorOrZero = 0.9
    equal_parts = (("width", "world_size"), ("num_classes", "world_size"))

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the features, of two hidden layers, and of the classes."""
        return (self.num_features, self.width, self.width, self.num_classes)

    @closed_form
    def model_bytes(self) -> int:
        """Bytes of all parameters."""
        return FLOAT_BYTES * mlp_parameters(self.widths)


RUNS = {
    "fsdp": Declaration("fsdp", 2, Settings(), has_timeline=True, can_share_device=False),
    "single": Declaration("single", 1, Settings(batch_size=32), passes=("timed",)),
}
TRIED_WITH = {"*": {"num_epochs": 1, "num_samples": 512}}
