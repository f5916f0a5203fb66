"""The model of a question, built without data and divided among ranks as its strategy says.

In: a `Question` and the meshes. Out: a `BuiltStage`: the module to call, its batch and its loss.
Units are what FSDP shards and what checkpointing recomputes: the layers of a transformer, and of
any other module the children of its largest `ModuleList` or `Sequential`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from proofbook.companions.planner.answers.question import Question, Strategy
from proofbook.companions.planner.simulated import own_model
from proofbook.companions.planner.simulated.axes import TensorAxis
from proofbook.companions.planner.simulated.layers import LocalExperts, RankPlan
from proofbook.companions.planner.simulated.transformer import RankTransformer
from proofbook.runners.core.meters.memory import CPU

CONTEXT, EXPERT = "context", "expert"  # describe groups of ranks that divide a sequence, experts


@dataclass
class BuiltStage:
    """A module on one rank."""

    module: nn.Module  # without wrappers
    wrapped: nn.Module  # what a step calls
    arguments: Callable[[], Any]  # of one microbatch, for this stage; a dictionary names them
    loss: Callable[[Any], Tensor]  # from what the last stage returns; a number
    is_first: bool = True  # of a pipeline's stages
    is_last: bool = True


def build(question: Question, mesh: DeviceMesh | None, stage: int) -> BuiltStage:
    """The `BuiltStage` of a stage: built without memory, divided, allocated, maybe in DDP.

    The mesh has the axes `pipeline`, `data` and `tensor`; it is None for a single device. A
    PlanError where a function that the model names is not there.
    """
    strategy, model = question.strategy, question.model
    for name in filter(None, (model.module, model.batch, model.tensor_plan)):
        own_model.named(name)  # what a module creates while it loads has a device and a type
    with _default_type(question), torch.device("meta"):
        build_stage = _own if model.architecture is None else _preset
        built = build_stage(question, mesh, stage)
    if question.has_fsdp and mesh is not None:
        _shard(built.module, question, mesh["data"])
    _give_memory(built.module)
    built.wrapped = built.module
    # Stages of a pipeline and fp32 gradients are summed at the end of a step, and not by DDP.
    is_plain = strategy.pipeline == 1 and not question.implementation.has_wide_gradients
    sums = strategy.num_summing > 1 and strategy.sharding == "none"
    if sums and is_plain and mesh is not None:
        built.wrapped = DistributedDataParallel(
            built.module,
            process_group=mesh.get_group("data"),
            gradient_as_bucket_view=strategy.has_bucket_views,
        )
    return built


def _give_memory(module: nn.Module) -> None:
    """Give parameters memory; unlike `to_empty`, keep those tied that modules share."""
    names: defaultdict[int, list[str]] = defaultdict(list)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    module.to_empty(device=CPU)
    for first, *tied in names.values():
        for name in tied:
            owner, _, own_name = name.rpartition(".")
            module.get_submodule(owner).register_parameter(own_name, module.get_parameter(first))


@contextmanager
def _default_type(question: Question) -> Iterator[None]:
    """Set the type of new parameters and batches: bf16, unless FSDP casts them."""
    training, before = question.training, torch.get_default_dtype()
    is_low = training.precision == "bf16"
    is_low |= training.precision == "bf16-mixed" and not question.has_fsdp
    torch.set_default_dtype(torch.bfloat16 if is_low else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _preset(question: Question, mesh: DeviceMesh | None, stage: int) -> BuiltStage:
    shape, strategy = question.model.architecture, question.strategy
    assert shape is not None
    length = question.training.sequence // strategy.context
    training = question.training.model_copy(update={"sequence": length})
    divides = mesh["tensor"] if mesh is not None and strategy.tensor > 1 else None
    axis = TensorAxis(
        divides, strategy.tensor, strategy.has_sequence_parallel, strategy.keeps_gathered
    )
    context = _neighbours(mesh, strategy.context, CONTEXT)
    experts = _neighbours(mesh, strategy.expert, EXPERT)
    part = RankPlan(shape, training, question.implementation, axis, context, experts)
    module = RankTransformer(part, question.layers_of(stage))
    _checkpoint(module, training.checkpointing)
    size = (training.microbatch, training.sequence)

    def tokens() -> tuple[Tensor]:
        return (torch.zeros(size, dtype=torch.long),)

    def hidden() -> tuple[Tensor]:
        low = training.precision.startswith("bf16")
        length = training.sequence // (axis.size if axis.has_sequence_parallel else 1)
        dtype = torch.bfloat16 if low else torch.float32
        whole = (training.microbatch, length, shape.hidden_size)
        return (torch.empty(whole, dtype=dtype, requires_grad=True),)

    def loss(logits: Tensor) -> Tensor:
        return module.loss(logits, torch.zeros(size, dtype=torch.long))

    first, last = module.is_first, module.is_last
    return BuiltStage(module, module, tokens if first else hidden, loss, first, last)


def _own(question: Question, mesh: DeviceMesh | None, _: int) -> BuiltStage:
    model, strategy = question.model, question.strategy
    module = own_model.built(model)
    if strategy.tensor > 1 and mesh is not None:
        parallelize_module(module, mesh["tensor"], own_model.named(model.tensor_plan or "")())
    _checkpoint(module, question.training.checkpointing)  # which gives layers other names

    def arguments() -> Any:
        with _default_type(question):
            return own_model.arguments(model, question.training)

    def loss(output: Any) -> Tensor:
        return own_model.loss_of(output, own_model.line_of(module.forward))

    return BuiltStage(module, module, arguments, loss)


def units(module: nn.Module) -> nn.ModuleList | nn.Sequential | None:
    """The `ModuleList` or `Sequential` with most parameters, whose members are units, or None."""
    lists = [m for m in module.modules() if isinstance(m, (nn.ModuleList, nn.Sequential)) and m]

    def size(children: nn.Module) -> tuple[int, int]:
        return sum(p.numel() for p in children.parameters()), len(list(children.children()))

    return max(lists, key=size, default=None)


# What selective checkpointing keeps: every second product, attention, and reductions.
_PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}
_SAVED = {
    torch.ops.planning.attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}


def _contexts() -> Any:
    """Two contexts, of forward and recomputation, that keep `_SAVED` and every second product."""
    count = {False: 0, True: 0}

    def policy(context: Any, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        is_kept = operation in _SAVED
        if operation in _PRODUCTS:
            count[context.is_recompute] += 1
            is_kept = count[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def _checkpoint(module: nn.Module, which: str) -> None:
    children = units(module)
    if which == "none" or children is None:
        return
    how: dict[str, Any] = {"preserve_rng_state": False}
    if which == "selective":
        how["context_fn"] = _contexts
    for index, unit in enumerate(children):
        children[index] = checkpoint_wrapper(unit, **how)


def expert_data(mesh: DeviceMesh, strategy: Strategy) -> DeviceMesh:
    """The ranks of the data axis that have the same experts."""
    sizes = strategy.shards // strategy.expert, strategy.expert
    return mesh._unflatten(0, sizes, ("expert_data", "data"))["expert_data"]


def _neighbours(mesh: DeviceMesh | None, size: int, name: str) -> dist.ProcessGroup | None:
    """This rank's group of `size` neighbours on the data axis, described by a name."""
    if mesh is None or size == 1:
        return None
    data = mesh.get_group("data")
    start = data.rank() // size * size
    ranks = dist.get_process_group_ranks(data)[start : start + size]
    own: dist.ProcessGroup = dist.new_group(ranks, use_local_synchronization=True, group_desc=name)
    return own


def _shard(module: nn.Module, question: Question, mesh: DeviceMesh) -> None:
    """Apply FSDP to each unit, and to the root with all other parameters.

    HSDP shards within a replica. Experts that ranks divide are units within units, since each is
    sharded over fewer ranks.
    """
    strategy, policy = question.strategy, MixedPrecisionPolicy()
    if question.training.precision == "bf16-mixed":  # fp32 shards, gathered in bf16
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    sizes, among = (strategy.replicas, strategy.shards), mesh
    if strategy.replicas > 1:
        among = mesh._unflatten(0, sizes, ("replicas", "shards"))
    shard = shard_experts = partial(fully_shard, mesh=among, mp_policy=policy)
    if strategy.expert > 1:
        shard_experts = partial(shard, mesh=expert_data(mesh, strategy))
    reshards = strategy.reshards_to or strategy.sharding == "fsdp"
    own = list(units(module) or ())
    for index, unit in enumerate(own):
        stays = question.implementation.last_unit_stays and index == len(own) - 1
        after = False if stays else reshards
        if strategy.expert > 1:
            for experts in (part for part in unit.modules() if isinstance(part, LocalExperts)):
                shard_experts(experts, reshard_after_forward=after)
        shard(unit, reshard_after_forward=after)
    if question.implementation.ends_are_units and isinstance(module, RankTransformer):
        shard(module.embedding, reshard_after_forward=reshards)
        shard([module.norm, module.logits], reshard_after_forward=False)
    shard(module, reshard_after_forward=reshards)
