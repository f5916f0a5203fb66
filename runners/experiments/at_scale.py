"""One rank of many: what a large transformer needs there, worked out with empty tensors.

A process is rank 0 of a group that pretends to be large, and trains a transformer of fake tensors:
every allocation has a size and takes no memory, and the meter follows it. The same functions train
a small transformer on real ranks, where the two meters are compared.

    python -m runners run at_scale
"""

from __future__ import annotations

from dataclasses import asdict, replace

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from proofbook.runners.api import Count, Declaration, Setting
from proofbook.runners.closed_forms.shape import FLOAT_BYTES, TransformerSettings, TransformerShape
from proofbook.runners.training.rank import FakeMemoryMeter, Rank, local, wait_until_idle
from proofbook.runners.training.split import groups_of_a_kind, shard_blocks, split_transformer
from proofbook.runners.training.transformer_model import SmallGPT, next_token_loss


def fake(rank: Rank[Settings]) -> None:
    """Build and train a model as rank 0 of a fake group, on fake tensors; record its memory."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=rank.settings.num_ranks)
    model = _wrapped(rank, _mesh(rank))
    with FakeTensorMode(allow_non_fake_inputs=True):
        rank.start_memory(FakeMemoryMeter())
        _train(rank, model)
        rank.stop_memory()


def real(rank: Rank[Settings]) -> None:
    """Build and train a model on real ranks; record memory, once a tiny model's step has run."""
    mesh = _mesh(rank)
    model = _wrapped(rank, mesh)
    _touch_once(rank, mesh)
    rank.start_memory()
    _train(rank, model)
    rank.stop_memory()


def _train(rank: Rank[Settings], model: SmallGPT) -> None:
    """A few steps with Adam; what is held between steps has a phase of its own."""
    settings = rank.settings
    _fill(rank, model)
    size = (settings.num_samples, settings.context)
    tokens = torch.zeros(size, dtype=torch.long, device=rank.device)
    update = torch.optim.Adam(groups_of_a_kind(model), lr=0.001, fused=True)
    rank.inputs(tokens)
    rank.watch(model, update)
    for _ in rank.steps(1):
        loss = next_token_loss(model(tokens), tokens)
        loss.backward()
        with rank.phase("optimizer"):  # ends before "held", while gradients are still there
            update.step()
        if rank.declaration.strategy == "real":
            wait_until_idle()  # gloo's own threads free the last buffers
        with rank.phase("held", computes=False):
            del loss
        update.zero_grad()


def _mesh(rank: Rank[Settings]) -> DeviceMesh:
    """The ranks as replicas × shards × parts of a layer, without dimensions of one rank."""
    settings = rank.settings
    sizes = (settings.num_replicas, settings.num_shards, settings.num_tensor_ranks)
    axes = zip(("replica", "shard", "tensor"), sizes, strict=True)
    used = {name: size for name, size in axes if size > 1}
    return init_device_mesh(rank.device.type, tuple(used.values()), mesh_dim_names=tuple(used))


def _wrapped(rank: Rank[Settings], mesh: DeviceMesh) -> SmallGPT:
    """The model of the settings; tensors come when the meter is there to see them."""
    rank.stop_memory()  # what wrapping touches for so many ranks is code and objects, no tensors
    with rank.phase("wrap"):
        return _build(rank.settings.shape, mesh)


def _build(shape: TransformerShape, mesh: DeviceMesh) -> SmallGPT:
    """A transformer without memory: layers split over tensor ranks, then sharded over others."""
    model = SmallGPT(shape, torch.device("meta"))
    names = mesh.mesh_dim_names or ()
    if "tensor" in names:
        split_transformer(model, mesh["tensor"])
    over = tuple(name for name in names if name != "tensor")
    if over:
        shard_blocks(model, mesh[over])
    return model


@torch.no_grad()
def _fill(rank: Rank[Settings], model: SmallGPT) -> None:
    model.to_empty(device=rank.device)
    for parameter in model.parameters():
        local(parameter).normal_(std=0.02)


def _touch_once(rank: Rank[Settings], mesh: DeviceMesh) -> None:
    """A tiny model's step, so that the kernel's mark holds no code that is touched first."""
    width = 8 * mesh.size()
    model = _build(TransformerShape(width, width, width, mesh.size(), 1, width), mesh)
    _fill(rank, model)
    tokens = torch.zeros((1, width), dtype=torch.long, device=rank.device)
    next_token_loss(model(tokens), tokens).backward()
    torch.optim.Adam(groups_of_a_kind(model), lr=0.0, fused=True).step()


QUESTION = "What does one rank out of many hold of a transformer that no single device could train?"
COPIES_PER_PARAMETER = 4  # Adam keeps each parameter, its gradient and two moments


class Settings(TransformerSettings):
    """A transformer, and how ranks divide it: replicas, parts of a layer, and shards of these."""

    vocabulary: Count
    num_samples: Count = 1
    num_ranks: Count
    num_replicas: Count
    num_tensor_ranks: Count
    equal_parts = (
        ("width", "num_heads"),
        ("num_heads", "num_tensor_ranks"),
        *((name, "num_parts") for name in ("vocabulary", "context", "width", "hidden")),
    )

    @property
    def num_shards(self) -> int:
        """Of each part of a replica."""
        return self.num_ranks // (self.num_replicas * self.num_tensor_ranks)

    @property
    def num_parts(self) -> int:
        """Into how many parts a replica is divided, over shards and tensor ranks."""
        return self.num_shards * self.num_tensor_ranks

    def closed_forms(self) -> dict[str, Setting]:
        """By name, of the settings: parameters and bytes; a rank's bytes, held and at its peak.

        What it keeps includes its gradients. Without FSDP, the gradient of a table that is split by
        its rows stays whole: DTensor does not shard it.
        """
        shape, table = self.shape, FLOAT_BYTES * self.vocabulary * self.width
        own = FLOAT_BYTES * shape.parameters_on_a_rank(self.num_shards, self.num_tensor_ranks)
        is_sharded = self.num_shards * self.num_replicas > 1
        unsharded = 0 if is_sharded else table - table // self.num_tensor_ranks
        return {
            "num_parameters": shape.num_parameters(),
            "model_bytes": FLOAT_BYTES * shape.num_parameters(),
            "held_bytes": COPIES_PER_PARAMETER * own + unsharded,
            "peak_bytes": self._peak(own, table, is_sharded=is_sharded),
        }

    def _peak(self, own: int, table: int, *, is_sharded: bool) -> int:
        """Bytes that a rank holds at its peak: the highest of forward, backward and update.

        Its `own` parameters are those between steps; a `table` of the vocabulary is whole.
        """
        shape, shards, parts = self.shape, self.num_shards, self.num_tensor_ranks
        block = FLOAT_BYTES * shape.block_parameters_on_a_rank(parts)  # gathered
        root = FLOAT_BYTES * shape.root_parameters(parts)
        token = FLOAT_BYTES * self.num_samples * self.context
        kept, activation = token * shape.block_activations(parts), token * self.width
        # As the loss is taken, logits stand there three times: gathered, as scores, as logarithms.
        gathered = block + root if is_sharded else 0
        losing = self.num_layers * kept + 3 * (token * self.vocabulary + activation)
        forward = 3 * own + gathered + losing
        if not is_sharded:  # the update takes its part of the gradient that was left whole
            return max(forward, COPIES_PER_PARAMETER * own + table)
        # In backward four blocks are whole, one gathered, one ahead, a gradient, and one to
        # scatter; the root stays gathered with its head's gradient. How many blocks have their
        # gradients scattered by then follows from what weighs more: a block's share of these, or
        # what it kept for backward.
        share = block // shards
        done = self.num_layers - 2 if share > kept else 1
        whole = 4 * block + root + table // parts
        still_kept = (self.num_layers - 1 - done) * kept + 6 * activation
        return max(forward, 3 * own + done * share + whole + still_kept)


MODELS = {
    "small": TransformerShape(1024, 64, 256, 8, 6, 1024),
    # Billions of parameters, with the widths and depths of models that are called so.
    "seven": TransformerShape(32768, 2048, 4096, 32, 32, 16384),
    "seventy": TransformerShape(32768, 2048, 8192, 64, 80, 36864),
}


def _run(
    model: str, ranks: int, replicas: int = 1, parts: int = 1, **changed: int
) -> Declaration[Settings]:
    """One run of a model whose ranks are so many replicas, and parts of a layer; or shards."""
    divided = {"num_ranks": ranks, "num_replicas": replicas, "num_tensor_ranks": parts}
    label = "hsdp" if replicas > 1 else "fsdp"
    if parts > 1:
        label = "fsdp_tensor" if ranks > replicas * parts else "tensor_parallel"
    return Declaration(
        "fake",
        1,
        Settings(**{**asdict(MODELS[model]), **changed, **divided}),
        label=label,
        passes=("metered",),
        can_share_device=False,
        only_on_cpu=True,
        nature="simulated",
        full=True,
    )


def _both(way: str, **ranks: int) -> dict[str, Declaration[Settings]]:
    """The small model on real ranks, and on one with fake tensors; one such pair is not heavy."""
    fake = replace(_run("small", 4, **ranks), full=way != "fsdp_tensor")
    real = replace(fake, strategy="real", world_size=4, nature="real")
    return {f"real_{way}": real, f"fake_{way}": fake}


RUNS = {
    **_both("fsdp"),
    **_both("tensor", parts=4),
    **_both("fsdp_tensor", parts=2),
    **_both("hsdp", replicas=2),
    # A few layers of a large model are soon worked out; a layer is like the next.
    "seventy_layers_4": _run("seventy", 1024, parts=8, num_layers=4),
    "seventy_layers_6": _run("seventy", 1024, parts=8, num_layers=6),
    "seven_fsdp_8": _run("seven", 8),
    "seven_fsdp_1024": _run("seven", 1024),
    "seven_tensor_8": _run("seven", 8, parts=8),
    "seven_fsdp_tensor_64": _run("seven", 64, parts=8),
    "seven_hsdp_64": _run("seven", 64, replicas=8),
    "seventy_tensor_8": _run("seventy", 8, parts=8),
    "seventy_fsdp_1024": _run("seventy", 1024),
    "seventy_fsdp_tensor_1024": _run("seventy", 1024, parts=8),
    "seventy_hsdp_1024": _run("seventy", 1024, replicas=16),
}
