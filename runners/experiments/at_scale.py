"""One rank of many: what a large transformer needs there, worked out with empty tensors.

A process is rank 0 of a group that pretends to be large, and trains a transformer of fake tensors:
every allocation has a size and takes no memory, and the meter follows it. The same functions train
a small transformer on real ranks, where the two meters are compared.

    python -m runners run at_scale
"""

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

from runners.meters.fake_memory import FakeMemoryMeter
from runners.meters.gloo_threads import wait_until_idle
from runners.meters.memory import local
from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, RunSettings
from runners.ranks.rank import Rank
from runners.traces.schema import Setting
from runners.training.shape import FLOAT, TransformerShape
from runners.training.split import groups_of_a_kind, split_transformer
from runners.training.transformer_model import Transformer, next_token_loss


def fake(rank: Rank[Settings]) -> None:
    """Rank 0 of a group that pretends, and tensors without memory."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=rank.settings.num_ranks)
    _run_on(rank, _mesh(rank, "cpu"))


def real(rank: Rank[Settings]) -> None:
    """Ranks that exist, and tensors that hold numbers."""
    _run_on(rank, _mesh(rank, rank.device.type))


def _run_on(rank: Rank[Settings], mesh: DeviceMesh) -> None:
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


def _build(shape: TransformerShape, mesh: DeviceMesh) -> Transformer:
    """A transformer without memory: layers split over tensor ranks, the result sharded over others.

    Tensors come when the meter is there to see them.
    """
    model = Transformer(shape, torch.device("meta"))
    names = mesh.mesh_dim_names or ()
    if "tensor" in names:
        split_transformer(model, mesh["tensor"])
    over = tuple(name for name in names if name != "tensor")
    if over:
        for block in model.blocks:
            fully_shard(block, mesh=mesh[over])
        fully_shard(model, mesh=mesh[over])
    return model


@torch.no_grad()
def _initialise(model: Transformer) -> None:
    for parameter in model.parameters():
        local(parameter).normal_(std=0.02)


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


QUESTION = "What does one rank out of many hold of a transformer that no single device could train?"
COPIES_PER_PARAMETER = 4  # Adam keeps each parameter, its gradient and two moments


class Settings(RunSettings):
    """A transformer, and how ranks divide it: replicas, parts of a layer, and shards of these."""

    vocabulary: Count
    width: Count
    num_heads: Count
    hidden: Count
    num_layers: Count
    length: Count
    num_samples: Count = 1
    num_ranks: Count
    num_replicas: Count
    num_tensor_ranks: Count

    @property
    def shape(self) -> TransformerShape:
        """The transformer."""
        return TransformerShape(
            vocabulary=self.vocabulary,
            context=self.length,
            width=self.width,
            num_heads=self.num_heads,
            num_layers=self.num_layers,
            hidden=self.hidden,
        )

    @property
    def num_shards(self) -> int:
        """Of each part of a replica."""
        return self.num_ranks // (self.num_replicas * self.num_tensor_ranks)

    @property
    def _is_sharded(self) -> bool:
        return self.num_shards * self.num_replicas > 1

    def closed_forms(self) -> dict[str, Setting]:
        """What the model has, and what a rank keeps between steps, with gradients, and at its peak.

        Nothing shards the gradient of a table that is split by its rows: DTensor leaves it whole.
        """
        shape, table = self.shape, FLOAT * self.vocabulary * self.width
        own = parameters_on_a_rank(shape, self.num_shards, self.num_tensor_ranks)
        unsharded = 0 if self._is_sharded else table - table // self.num_tensor_ranks
        return {
            "num_shards": self.num_shards,
            "num_parameters": shape.num_parameters(),
            "num_parameters_per_rank": own,
            "model_bytes": FLOAT * shape.num_parameters(),
            "held_bytes": COPIES_PER_PARAMETER * FLOAT * own + unsharded,
            "peak_bytes": self._peak(FLOAT * own, table),
        }

    def _peak(self, own: int, table: int) -> int:
        """Bytes that a rank holds at its peak: the highest of forward, backward and update.

        Args:
            own: its parameters, between steps.
            table: one table of the vocabulary, whole.
        """
        shape, shards, parts = self.shape, self.num_shards, self.num_tensor_ranks
        block = FLOAT * shape.block_parameters_on_a_rank(parts)  # gathered
        root = FLOAT * _root_parameters(shape, parts)
        token = FLOAT * self.num_samples * self.length
        kept, activation = token * shape.block_activations(parts), token * self.width
        # As the loss is taken, logits stand there three times: gathered, as scores, as logarithms.
        gathered = block + root if self._is_sharded else 0
        losing = self.num_layers * kept + 3 * (token * self.vocabulary + activation)
        forward = 3 * own + gathered + losing
        if not self._is_sharded:  # the update takes its part of the gradient that was left whole
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

    def check(self) -> None:
        """Refuse ranks that cannot be divided so, or that cannot divide the model."""
        num_ranks, parts = self.num_ranks, self.num_tensor_ranks
        if self.strategy == "real" and num_ranks != self.world_size:
            raise ValueError(f"num_ranks {num_ranks} must be the world_size {self.world_size}")
        if num_ranks < 2 or num_ranks % (self.num_replicas * parts):
            raise ValueError(
                f"{num_ranks} ranks cannot be {self.num_replicas} replicas of {parts} tensor ranks"
            )
        self.divides(("width", "num_heads"), ("num_heads", "num_tensor_ranks"))
        for name in ("vocabulary", "length", "width", "hidden"):
            if getattr(self, name) % (self.num_shards * parts):
                raise ValueError(f"{name} {getattr(self, name)} cannot be dealt out to the ranks")


def parameters_on_a_rank(shape: TransformerShape, shards: int, parts: int) -> int:
    """Parameters that one rank keeps between steps."""
    blocks = shape.num_layers * shape.block_parameters_on_a_rank(parts)
    return (_root_parameters(shape, parts) + blocks) // shards


def _root_parameters(shape: TransformerShape, parts: int) -> int:
    """Parameters outside the blocks: two tables of the vocabulary, positions and the last norm."""
    tables = 2 * shape.vocabulary * shape.width // parts
    return tables + shape.context * shape.width + 2 * shape.width


MODELS: dict[str, dict[str, int]] = {
    "small": {
        "vocabulary": 1024, "width": 256, "num_heads": 8, "hidden": 1024, "num_layers": 6,
        "length": 64,
    },
    # Billions of parameters, with the widths and depths of models that are called so.
    "seven": {
        "vocabulary": 32768, "width": 4096, "num_heads": 32, "hidden": 16384, "num_layers": 32,
        "length": 2048,
    },
    "seventy": {
        "vocabulary": 32768, "width": 8192, "num_heads": 64, "hidden": 36864, "num_layers": 80,
        "length": 2048,
    },
}  # fmt: skip
# How a run uses its ranks: replicas of the model, and parts of a layer; the others are shards.
SMALL = {"fsdp": (1, 1), "tensor": (1, 4), "fsdp_tensor": (1, 2), "hsdp": (2, 1)}
# (ranks, replicas, parts of a layer) of each run of a large model at its full depth.
LARGE = {
    "seven": {
        "fsdp_8": (8, 1, 1),
        "fsdp_1024": (1024, 1, 1),
        "tensor_8": (8, 1, 8),
        "fsdp_tensor_64": (64, 1, 8),
        "hsdp_64": (64, 8, 1),
    },
    "seventy": {
        "tensor_8": (8, 1, 8),
        "fsdp_1024": (1024, 1, 1),
        "fsdp_tensor_1024": (1024, 1, 8),
        "hsdp_1024": (1024, 16, 1),
    },
}
SHALLOW = (4, 6)  # layers of a large model that are soon worked out; a layer is like the next


def _run(
    model: str,
    ranks: tuple[int, int, int],
    *,
    is_real: bool = False,
    full: bool = True,
    **changed: int,
) -> RunPlan[Settings]:
    """One run of a model; `ranks` are ranks, replicas and parts of a layer."""
    num_ranks, replicas, parts = ranks
    divided = {"num_ranks": num_ranks, "num_replicas": replicas, "num_tensor_ranks": parts}
    label = "hsdp" if replicas > 1 else "fsdp"
    if parts > 1:
        label = "fsdp_tensor" if num_ranks > replicas * parts else "tensor_parallel"
    return RunPlan(
        "real" if is_real else "fake",
        num_ranks if is_real else 1,
        Settings(**{**MODELS[model], **changed, **divided}),
        label=label,
        passes=("metered",),
        has_timeline=False,
        can_share_device=False,
        only_on_cpu=True,
        nature="real" if is_real else "simulated",
        full=full,
    )


def _runs() -> dict[str, RunPlan[Settings]]:
    runs: dict[str, RunPlan[Settings]] = {}
    for way, divided in SMALL.items():
        full = way != "fsdp_tensor"
        runs[f"real_{way}"] = _run("small", (4, *divided), is_real=True, full=full)
        runs[f"fake_{way}"] = _run("small", (4, *divided), full=full)
    for num_layers in SHALLOW:
        ranks = LARGE["seventy"]["fsdp_tensor_1024"]
        runs[f"seventy_layers_{num_layers}"] = _run("seventy", ranks, num_layers=num_layers)
    for model, ways in LARGE.items():
        for way, ranks in ways.items():
            runs[f"{model}_{way}"] = _run(model, ranks)
    return runs


RUNS = _runs()
