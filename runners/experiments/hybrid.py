"""Two ways of splitting at once, on ranks in a square: what each axis carries, and what ranks hold.

Every run trains the same small transformer on the same batch.

    python -m runners run hybrid
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel

from proofbook.runners.closed_forms.shape import FLOAT_BYTES, TransformerSettings
from proofbook.runners.core.declared.experiment import Declaration
from proofbook.runners.core.declared.settings import Count, Factor
from proofbook.runners.core.meters.collectives import AxisMeter
from proofbook.runners.core.meters.memory import local
from proofbook.runners.core.ranks.rank import NUM_METERED_STEPS, Rank
from proofbook.runners.core.trace.schema import Setting
from proofbook.runners.training.split import blocks_plan, own_part, shard_blocks
from proofbook.runners.training.steps import of_all_ranks
from proofbook.runners.training.transformer_model import SmallGPT, next_token_loss, next_token_step


def fsdp_tensor(rank: Rank[Settings]) -> None:
    """Build and train a transformer: projections split along a mesh axis, FSDP along the other."""
    mesh = _square(rank, "shard", "tensor")
    model = _unfilled(rank)
    with rank.phase("wrap"):
        parallelize_module(model, mesh["tensor"], blocks_plan(rank.settings.num_layers))
    _shard(rank, model, mesh["shard"])
    _train(rank, model, mesh, part=mesh.get_local_rank("shard"))


def hsdp(rank: Rank[Settings]) -> None:
    """Sharded along one axis; the gradients of the shards are averaged along the other."""
    _train_shards(rank, _square(rank, "replicate", "shard"))


def fsdp(rank: Rank[Settings]) -> None:
    """Sharded over all four ranks: one axis, for comparison."""
    mesh = init_device_mesh(rank.device.type, (rank.world_size,), mesh_dim_names=("shard",))
    _train_shards(rank, mesh)


def _train_shards(rank: Rank[Settings], mesh: DeviceMesh) -> None:
    model = _unfilled(rank)
    _shard(rank, model, mesh)
    _train(rank, model, mesh, part=rank.rank)


def ddp_pipeline(rank: Rank[Settings]) -> None:
    """Build and train two pipelines of two stages by 1F1B; DDP averages equal stages' gradients."""
    settings = rank.settings
    mesh = _square(rank, "replicate", "pipeline")
    index = mesh.get_local_rank("pipeline")
    cut = 1 + settings.num_layers // SIDE
    layers = list(_unfilled(rank).named_children())
    own = nn.Sequential(OrderedDict(layers[cut:] if index else layers[:cut]))
    _fill(rank, own)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(own, process_group=mesh.get_group("replicate"))
    group = mesh.get_group("pipeline")
    stage = PipelineStage(replica, index, SIDE, rank.device, group=group)
    schedule = Schedule1F1B(stage, settings.num_microbatches, loss_fn=next_token_loss)

    def step(tokens: Tensor, targets: Tensor) -> float | None:
        losses: list[Tensor] = []
        with rank.phase("backward"):  # forwards of other microbatches are between
            if index == 0:
                schedule.step(tokens, return_outputs=False)
            else:
                schedule.step(target=targets, losses=losses, return_outputs=False)
        return torch.stack(losses).mean().item() if losses else None

    _train(rank, replica, mesh, part=mesh.get_local_rank("replicate"), step=step)


def single(rank: Rank[Settings]) -> None:
    """The oracle: one device, the whole model, the whole batch."""
    model = _unfilled(rank)
    _fill(rank, model)
    _train(rank, model)


def _train(
    rank: Rank[Settings],
    module: nn.Module,
    mesh: DeviceMesh | None = None,
    *,
    part: int = 0,
    step: Callable[[Tensor, Tensor], float | None] | None = None,
) -> None:
    """Take steps, count the last metered one by axis, and say how large the loss was in each.

    `part` of the batch goes forward and backward in `step`; where the module takes its sequences in
    one piece, there is no need for one.
    """
    tokens, targets = _samples(rank, part)
    step = step or partial(next_token_step, module)
    # The fused Adam refuses parameters of which some are cut along one axis and some along both.
    fused = rank.declaration.strategy != "fsdp_tensor"
    optimizer = torch.optim.Adam(module.parameters(), lr=rank.settings.learning_rate, fused=fused)
    rank.watch(module, optimizer)
    axes = AxisMeter(mesh) if mesh is not None and rank.is_metered else None
    losses: list[float | None] = []
    for index in rank.steps(rank.settings.num_steps):
        with axes if axes and index == NUM_METERED_STEPS - 1 else nullcontext():
            losses.append(step(tokens, targets))
            optimizer.step()
            optimizer.zero_grad()
        rank.count_samples(rank.settings.num_samples_per_rank)
    for name, count in axes.measured().items() if axes else ():
        rank.measure(name, count, unit="bytes" if name.endswith("_bytes") else "calls")
    if not rank.is_metered:
        # Ranks of an earlier stage know no loss; the others each saw their part of the batch.
        by_step = zip(*of_all_ranks(rank, losses), strict=True)
        means = [fmean(loss for loss in of if loss is not None) for of in by_step]
        rank.measure("losses", means, unit="loss")


def _samples(rank: Rank[Settings], part: int) -> tuple[Tensor, Tensor]:
    """This rank's tokens and the ones that follow them: (samples, context) each."""
    settings = rank.settings
    source = torch.Generator().manual_seed(rank.seed)
    shape = (settings.batch_size, settings.context + 1)
    drawn = torch.randint(0, settings.vocabulary, shape, generator=source)
    own = drawn[part * settings.num_samples_per_rank :][: settings.num_samples_per_rank]
    tokens, targets = (ids.contiguous().to(rank.device) for ids in (own[:, :-1], own[:, 1:]))
    rank.inputs(tokens, targets)
    return tokens, targets


def _square(rank: Rank[Settings], rows: str, columns: str) -> DeviceMesh:
    return init_device_mesh(rank.device.type, (SIDE, SIDE), mesh_dim_names=(rows, columns))


def _shard(rank: Rank[Settings], model: SmallGPT, mesh: DeviceMesh) -> None:
    with rank.phase("wrap"):
        shard_blocks(model, mesh)
        _fill(rank, model)


def _unfilled(rank: Rank[Settings]) -> SmallGPT:
    """The whole model without memory."""
    return SmallGPT(rank.settings.shape, torch.device("meta"))


@torch.no_grad()
def _fill(rank: Rank[Settings], module: nn.Module) -> None:
    """Give a module without memory the values it starts with: the same, whichever rank holds them.

    It is a `SmallGPT`, or some of its layers by their names, perhaps split and sharded.
    """
    places = {name: i for i, (name, _) in enumerate(_unfilled(rank).named_parameters())}
    module.to_empty(device=rank.device)
    for name, parameter in module.named_parameters():
        if "norm" in name:
            whole = torch.full(parameter.shape, 1.0 if name.endswith("weight") else 0.0)
        else:
            source = torch.Generator().manual_seed(1000 * rank.seed + places[name])
            whole = 0.05 * torch.randn(parameter.shape, generator=source)
        local(parameter).copy_(own_part(parameter, whole))


QUESTION = "What does each axis of the mesh carry when a model is split in two ways at once?"
SIDE = 2  # ranks along each axis of the square


class Settings(TransformerSettings):
    """A small transformer, its batch, and what each rank holds and sends."""

    vocabulary: Count = 64
    context: Count = 32
    width: Count = 64
    num_heads: Count = 4
    num_layers: Count = 2
    hidden: Count = 256
    batch_size: Count = 16
    num_microbatches: Count = 4
    num_steps: Count = 5
    learning_rate: Factor = 0.003
    equal_parts = (
        ("width", "num_heads"),
        ("width", "world_size"),
        ("batch_size", "num_data_parts"),
        *((name, "num_sides") for name in ("num_heads", "num_layers", "hidden")),
    )

    @property
    def num_sides(self) -> int:
        """Ranks along each axis."""
        return SIDE if self.world_size > 1 else 1

    @property
    def num_data_parts(self) -> int:
        """Parts in which the samples of a batch are dealt out."""
        return {"single": 1, "ddp_pipeline": SIDE, "fsdp_tensor": SIDE}.get(self.strategy, 4)

    @property
    def num_samples_per_rank(self) -> int:
        """Sequences of the batch that a rank sees."""
        return self.batch_size // self.num_data_parts

    def closed_forms(self) -> dict[str, Setting]:
        """By name, of the settings: bytes of model, block, ends, first stage and activation.

        The ends are what FSDP's root gathers once and keeps; the first stage has the embeddings.
        """
        shape = self.shape
        block = FLOAT_BYTES * shape.block_parameters()
        return {
            "model_bytes": FLOAT_BYTES * shape.num_parameters(),
            "block_bytes": block,
            "ends_bytes": FLOAT_BYTES * shape.root_parameters(1),
            "tensor_block_bytes": FLOAT_BYTES * shape.block_parameters_on_a_rank(SIDE),
            "first_stage_bytes": FLOAT_BYTES * shape.embedding_parameters()
            + self.num_layers // SIDE * block,
            "activation_bytes": FLOAT_BYTES * self.num_samples_per_rank * self.context * self.width,
        }


run = partial(Declaration, world_size=SIDE * SIDE, settings=Settings(), can_share_device=False)
RUNS = {
    "single": run("single", world_size=1),
    "ddp_pipeline": run("ddp_pipeline"),
    "fsdp_tensor": run("fsdp_tensor"),
    "hsdp": run("hsdp"),
    "fsdp": run("fsdp", full=True),
}
# Larger models, so that what they hold and send weighs; the batch stays small.
ON_CUDA = {
    "*": {"vocabulary": 4096, "context": 512, "width": 1024, "num_heads": 16, "hidden": 4096}
}
