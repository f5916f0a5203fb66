"""What one rank has of a transformer over a mesh of ranks, and how it takes a step of it.

In: a rank, and a mesh with some of the axes `pipeline`, `replicate`, `shard` and `tensor`; or none,
for the whole model. Out: its layers, split and sharded, an update of them, and the gradient's norm.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from proofbook.runners.training.rank import Rank, local
from proofbook.runners.training.split import block_plan, groups_of_a_kind, own_part
from proofbook.runners.training.transformer_model import (
    GPTBlock,
    SmallGPT,
    next_token_loss,
    next_token_step,
)

DATA_AXES = ("replicate", "shard")


def mesh_of(rank: Rank[Any], axes: Mapping[str, int]) -> DeviceMesh | None:
    """A mesh of those axes that have several ranks, the outermost first; None for one process."""
    sizes = {axis: size for axis, size in axes.items() if size > 1}
    names, device = tuple(sizes), rank.device.type
    return init_device_mesh(device, tuple(sizes.values()), mesh_dim_names=names) if sizes else None


class Training:
    """What one rank has of a model and its batch, by its place in a mesh; all without a mesh."""

    def __init__(self, rank: Rank[Any], mesh: DeviceMesh | None, dtype: torch.dtype) -> None:
        self.rank, self.settings, self.mesh = rank, rank.settings, mesh
        self.sizes = dict(zip(mesh.mesh_dim_names or (), mesh.shape, strict=True)) if mesh else {}
        self.place = {axis: mesh.get_local_rank(axis) for axis in self.sizes} if mesh else {}
        self.num_stages, self.index = self.sizes.get("pipeline", 1), self.place.get("pipeline", 0)
        with rank.phase("wrap"):
            self.module = self._own_layers().to(dtype)
            self._divide()
            _fill(rank, self.module)
            self.replica = self._replica()
        self.groups = groups_of_a_kind(self.module)  # a mesh each, also for an optimizer
        self.tokens, self.targets = self._own_samples()
        if self.num_stages > 1 and mesh:
            of_stage = (self.replica, self.index, self.num_stages, rank.device)
            self.stage = PipelineStage(*of_stage, group=mesh.get_group("pipeline"))
            num_parts = self.settings.num_microbatches
            self.schedule = Schedule1F1B(self.stage, num_parts, loss_fn=next_token_loss)

    def update(self, optimizer: torch.optim.Optimizer) -> tuple[float | None, float]:
        """Take a step: the loss of the own samples, on the last stage; the gradient's norm."""
        loss = self.backward()
        norm = self._clip()
        optimizer.step()
        optimizer.zero_grad()
        return loss, norm

    def backward(self) -> float | None:
        """Forward and backward of the own samples; their mean loss, on the last stage."""
        if self.num_stages == 1:
            return next_token_step(self.replica, self.tokens, self.targets)
        losses: list[Tensor] = []
        tokens = () if self.index else (self.tokens,)
        wanted = self.targets if self.index == self.num_stages - 1 else None
        with self.rank.phase("backward"):  # forwards of other microbatches are between
            self.schedule.step(*tokens, target=wanted, losses=losses, return_outputs=False)
        return torch.stack(losses).mean().item() if losses else None

    def _clip(self) -> float:
        """Scale the gradient to the largest norm that is allowed; its norm before.

        Parameters of one mesh have one norm; those of all meshes together give the norm of the
        stage, and those of all stages the norm of the model.
        """
        total = torch.zeros((), dtype=torch.float64, device=self.rank.device)
        for group in self.groups:
            norm = get_total_norm([parameter.grad for parameter in group["params"]])
            total += (norm.full_tensor() if isinstance(norm, DTensor) else norm) ** 2
        self.stage_norm = total.sqrt().item()
        if self.num_stages > 1 and self.mesh:
            dist.all_reduce(total, group=self.mesh.get_group("pipeline"))
        for group in self.groups:
            clip_grads_with_norm_(group["params"], self.settings.most_norm, total.sqrt())
        return total.sqrt().item()

    def _own_layers(self) -> nn.Sequential:
        """The layers of the own stage, by their names in the whole model, without memory."""
        layers = list(SmallGPT(self.settings.shape, torch.device("meta")).named_children())
        size = self.settings.num_layers // self.num_stages
        start = 1 + self.index * size if self.index else 0
        end = 1 + (self.index + 1) * size if self.index < self.num_stages - 1 else None
        return nn.Sequential(OrderedDict(layers[start:end]))

    def _divide(self) -> None:
        """Split each block over the tensor axis, then shard it over the data axes."""
        blocks = [layer for layer in self.module if isinstance(layer, GPTBlock)]
        if self.mesh and "tensor" in self.sizes:
            for block in blocks:
                parallelize_module(block, self.mesh["tensor"], block_plan(), src_data_rank=None)
        data = tuple(axis for axis in DATA_AXES if axis in self.sizes)
        if self.mesh and "shard" in self.sizes:
            for unit in (*blocks, self.module):
                # In a pipeline they stay gathered, or every microbatch would gather them again.
                again = self.num_stages == 1 and unit is not self.module
                fully_shard(unit, mesh=self.mesh[data], reshard_after_forward=again)

    def _replica(self) -> nn.Module:
        """The module as it runs: under DDP where there are replicas without shards."""
        if not self.mesh or "replicate" not in self.sizes or "shard" in self.sizes:
            return self.module
        group = self.mesh.get_group("replicate")
        return DistributedDataParallel(self.module, process_group=group)

    def _own_samples(self) -> tuple[Tensor, Tensor]:
        """Tokens and those that follow them, of the own part of a batch: (samples, context)."""
        settings, part, num_parts = self.settings, 0, 1
        for axis in DATA_AXES:
            part = part * self.sizes.get(axis, 1) + self.place.get(axis, 0)
            num_parts *= self.sizes.get(axis, 1)
        source = torch.Generator().manual_seed(self.rank.seed)
        shape = (settings.batch_size, settings.context + 1)
        drawn = torch.randint(settings.vocabulary, shape, generator=source)
        own = drawn.chunk(num_parts)[part].to(self.rank.device)
        tokens, targets = own[:, :-1].contiguous(), own[:, 1:].contiguous()
        self.rank.inputs(tokens, targets)
        return tokens, targets


@torch.no_grad()
def _fill(rank: Rank[Any], module: nn.Module) -> None:
    """Give a module without memory its first values: the same, whichever rank holds them."""
    module.to_empty(device=rank.device)
    for name, parameter in module.named_parameters():
        source = torch.Generator().manual_seed(rank.seed + zlib.crc32(name.encode()))
        whole = 0.05 * torch.randn(parameter.shape, generator=source) + ("norm.weight" in name)
        local(parameter).copy_(own_part(parameter, whole))
