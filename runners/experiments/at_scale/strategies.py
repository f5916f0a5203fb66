"""Rank 0 of a group that pretends to be large, with fake tensors; and real ranks beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from runners.experiments.at_scale import Settings
from runners.meters.fake_memory import FakeMemoryMeter
from runners.meters.gloo_threads import wait_until_idle
from runners.meters.memory import local
from runners.ranks.rank import Rank
from runners.training.shape import TransformerShape
from runners.training.split import groups_of_a_kind, split_transformer
from runners.training.transformer_model import Transformer, next_token_loss


def fake(rank: Rank[Settings]) -> None:
    """Rank 0 of a group that pretends, and tensors without memory."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=rank.settings.num_ranks)
    _run(rank, _mesh(rank, "cpu"))


def real(rank: Rank[Settings]) -> None:
    """Ranks that exist, and tensors that hold numbers."""
    _run(rank, _mesh(rank, rank.device.type))


def _mesh(rank: Rank[Settings], device_type: str) -> DeviceMesh:
    """The ranks as replicas × shards × parts of a layer, without dimensions of one rank."""
    settings = rank.settings
    sizes = {
        "replica": settings.num_replicas,
        "shard": settings.num_shards,
        "tensor": settings.num_tensor_ranks,
    }
    used = {name: size for name, size in sizes.items() if size > 1}
    return init_device_mesh(device_type, tuple(used.values()), mesh_dim_names=tuple(used))


def _wrap(model: Transformer, mesh: DeviceMesh) -> None:
    """Split the layers over the tensor ranks, then shard the result over the others."""
    names = mesh.mesh_dim_names or ()
    if "tensor" in names:
        split_transformer(model, mesh["tensor"])
    over = tuple(name for name in names if name != "tensor")
    if over:
        for block in model.blocks:
            fully_shard(block, mesh=mesh[over])
        fully_shard(model, mesh=mesh[over])


def _run(rank: Rank[Settings], mesh: DeviceMesh) -> None:
    """The same for real and for fake tensors."""
    settings = rank.settings
    rank.stop_memory()  # what wrapping touches for so many ranks is code and objects, no tensors
    with rank.phase("wrap"):
        model = _build(settings.shape, mesh)
    with _tensors_of(rank, mesh):
        model.to_empty(device=rank.device)
        _initialise(model)
        size = (settings.num_samples, settings.length)
        _train(rank, model, torch.zeros(size, dtype=torch.long, device=rank.device))


def _build(shape: TransformerShape, mesh: DeviceMesh) -> Transformer:
    """A transformer without memory, wrapped; tensors come when the meter is there to see them."""
    with torch.device("meta"):
        model = Transformer(shape)
    _wrap(model, mesh)
    return model


@torch.no_grad()
def _initialise(model: Transformer) -> None:
    for parameter in model.parameters():
        local(parameter).normal_(std=0.02)


def _train(rank: Rank[Settings], model: Transformer, tokens: Tensor) -> None:
    """A few steps with Adam; what is held between steps has a phase of its own."""
    update = torch.optim.Adam(groups_of_a_kind(model), lr=0.001, fused=True)
    rank.inputs(tokens)
    rank.watch(model, update)
    for _ in rank.steps(1):
        loss = next_token_loss(model(tokens), tokens)
        loss.backward()
        with rank.phase("optimizer"):  # ends before "held", while gradients are still there
            update.step()
        if rank.plan.strategy == "real":
            wait_until_idle()  # gloo's own threads free the last buffers
        with rank.phase("held", computes=False):
            del loss
        update.zero_grad()


@contextmanager
def _tensors_of(rank: Rank[Settings], mesh: DeviceMesh) -> Iterator[None]:
    """Real tensors under the real meter, or fake ones under theirs."""
    if rank.plan.strategy == "real":
        _touch_once(rank, mesh)
        rank.start_memory()
        yield
        rank.stop_memory()
        return
    with FakeTensorMode(allow_non_fake_inputs=True):
        rank.start_memory(FakeMemoryMeter())
        yield
        rank.stop_memory()


def _touch_once(rank: Rank[Settings], mesh: DeviceMesh) -> None:
    """A tiny model's step, so that the kernel's mark holds no code that is touched first."""
    width = 8 * mesh.size()
    model = _build(TransformerShape(width, width, width, mesh.size(), 1, width), mesh)
    model.to_empty(device=rank.device)
    _initialise(model)
    tokens = torch.zeros((1, width), dtype=torch.long, device=rank.device)
    next_token_loss(model(tokens), tokens).backward()
    torch.optim.Adam(groups_of_a_kind(model), lr=0.0, fused=True).step()


STRATEGIES = {"real": real, "fake": fake}
