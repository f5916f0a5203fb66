"""Train {model} on {devices} in the layout {layout}.

{plan}

    {launch}

FILE holds token ids of four bytes each; without it the program trains on sequences that count. The
same program made small, for any machine, on CPUs over gloo where there is no accelerator:

    torchrun --nproc-per-node {ranks} {file} --small

The layout was simulated. The program was never run on GPUs, but made small on CPUs.
"""

from __future__ import annotations

import argparse
import os
import re
import time
import warnings
import zlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.pipelining as pp
import torch.distributed.tensor.parallel as tp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

LEARNING_RATE = 3e-4
WEIGHT_DECAY = 0.1
MAX_NORM = 1.0  # of the gradient of the whole model
SEED = 0
# What selective checkpointing keeps: every second product, attention, and reductions.
PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}
SAVED = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}
Outcome = tuple[float, float]  # of a step: its mean loss, and the norm of its gradient


@dataclass(frozen=True)
class Plan:
    """The model, the layout and a step; the axes of the mesh are pipeline, data and tensor."""

    num_layers: int = 1
    hidden_size: int = 1
    num_heads: int = 1
    num_kv_heads: int = 1
    head_size: int = 1
    ffn_size: int = 1
    vocabulary: int = 1
    context_length: int = 1
    positions: str = "rotary"  # or learned
    rotary_base: int = 10_000
    rotary_size: int = 0  # elements of a head that turn; 0 for all
    activation: str = "swiglu"  # or gelu, or gelu_tanh
    norm: str = "rmsnorm"  # or layernorm
    norm_epsilon: float = 1e-5
    has_bias: bool = False
    has_qkv_bias: bool = False
    has_tied_embeddings: bool = False
    has_query_key_norm: bool = False
    num_experts: int = 1
    num_active_experts: int = 1
    pipeline: int = 1
    schedule: str = "none"  # gpipe, 1f1b or interleaved
    chunks: int = 1
    data: int = 1
    sharding: str = "none"  # zero1, fsdp or fsdp-keep
    has_bucket_views: bool = False
    replicas: int = 1
    reshards_to: int = 0
    tensor: int = 1
    sequence: int = 1
    microbatch: int = 1
    global_batch: int = 1
    precision: str = "bf16-mixed"  # fp32 or autocast
    checkpointing: str = "none"  # selective or all
    optimizer: str = "adam"  # momentum or sgd
    needed_gib: float = 0.0  # of the rank that needs most

    def norm_of(self, size: int) -> nn.Module:
        """A norm over the last dimension."""
        kind = nn.RMSNorm if self.norm == "rmsnorm" else nn.LayerNorm
        return kind(size, eps=self.norm_epsilon)

    @property
    def num_stages(self) -> int:
        """Stages of the pipeline; each of its ranks has `chunks` of them."""
        return self.pipeline * self.chunks

    @property
    def num_microbatches(self) -> int:
        """Microbatches of a data-parallel rank for one update."""
        return self.global_batch // (self.data * self.microbatch)

    def stages_of(self, mesh: DeviceMesh) -> range:
        """The stages of this rank: each pass through the pipeline's ranks adds one."""
        return range(mesh.get_local_rank("pipeline"), self.num_stages, self.pipeline)

    def layers_of(self, stage: int) -> range:
        """The layers of a stage: equally many, or one more in the first stages."""
        least, rest = divmod(self.num_layers, self.num_stages)
        start = stage * least + min(stage, rest)
        return range(start, start + least + (stage < rest))


PLAN = Plan()


def made_small(plan: Plan, num_ranks: int) -> Plan:
    """A `Plan` of the same layout on `num_ranks` ranks, with a model that CPUs train in seconds.

    The axes that the plan uses become equally large, as far as the number of ranks allows.
    """
    sizes: dict[str, Any] = {"data": 1, "tensor": 1, "pipeline": 1}
    used = [axis for axis in sizes if getattr(plan, axis) > 1]
    while used and prod(sizes.values()) < num_ranks:
        sizes[min(used, key=sizes.__getitem__)] *= 2
    data, pipeline = sizes["data"], sizes["pipeline"]
    chunks = plan.chunks if pipeline > 1 else 1
    return replace(
        plan,
        **sizes,
        num_layers=max(4, pipeline * chunks),
        hidden_size=128,
        num_heads=16,
        num_kv_heads=16 if plan.num_kv_heads == plan.num_heads else 8,
        head_size=8,
        rotary_size=min(4, plan.rotary_size),
        ffn_size=256,
        vocabulary=512,
        context_length=64,
        num_experts=min(4, plan.num_experts),
        num_active_experts=min(2, plan.num_active_experts),
        chunks=chunks,
        replicas=min(2, data) if plan.replicas > 1 else 1,
        reshards_to=max(1, data // 2) if plan.reshards_to else 0,
        sequence=64,
        microbatch=2,
        global_batch=max(8, 2 * data),
    )


# --- the model


def rotations_of(plan: Plan, device: torch.device) -> Tensor:
    """Complex numbers of length 1 (sequence, head size / 2), by which positions turn heads."""
    half = (plan.rotary_size or plan.head_size) // 2
    rates = plan.rotary_base ** (-torch.arange(half, device=device) / half)
    angles = torch.outer(torch.arange(plan.sequence, device=device), rates)
    return torch.polar(torch.ones_like(angles), angles)


def rotated(x: Tensor, rotations: Tensor) -> Tensor:
    """`x` (batch, sequence, heads, head size), each pair of neighbours turned by `rotations`.

    Pairs are turned in fp32; fewer rotations leave the last elements as they are.
    """
    if (size := 2 * rotations.shape[-1]) < x.shape[-1]:
        turning, staying = x.split([size, x.shape[-1] - size], -1)
        return torch.cat([rotated(turning, rotations), staying], -1)
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotations[:, None]).flatten(3).type_as(x)


class GroupedQueryAttention(nn.Module):
    """Causal attention, of as many heads as this rank has."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan, hidden, has_bias = plan, plan.hidden_size, plan.has_bias or plan.has_qkv_bias
        size, kv_size = (n * plan.head_size for n in (plan.num_heads, plan.num_kv_heads))
        self.query = nn.Linear(hidden, size, bias=has_bias)
        self.key = nn.Linear(hidden, kv_size, bias=has_bias)
        self.value = nn.Linear(hidden, kv_size, bias=has_bias)
        self.output = nn.Linear(size, hidden, bias=plan.has_bias)
        if plan.has_query_key_norm:
            self.query_norm, self.key_norm = (plan.norm_of(plan.head_size) for _ in range(2))

    def forward(self, x: Tensor, rotations: Tensor | None) -> Tensor:
        """Causal self-attention of `x` (batch, sequence, hidden), heads turned by `rotations`."""
        parts = self.project(x)
        query, key, value = (part.unflatten(-1, (-1, self.plan.head_size)) for part in parts)
        if self.plan.has_query_key_norm:
            query, key = self.query_norm(query), self.key_norm(key)
        if rotations is not None:
            query, key = rotated(query, rotations), rotated(key, rotations)
        context = self.attend(*(part.transpose(1, 2) for part in (query, key, value)))
        attended: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return attended

    def project(self, x: Tensor) -> Sequence[Tensor]:
        """Queries, keys and values of all heads."""
        return self.query(x), self.key(x), self.value(x)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """(batch, heads, sequence, head size) of each → as queries."""
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


class FeedForward(nn.Module):
    """The network that each token passes through by itself."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.inner = nn.Linear(plan.hidden_size, plan.ffn_size, bias=plan.has_bias)
        self.is_gated = "glu" in plan.activation
        self.is_silu = plan.activation == "swiglu"
        self.gelu = nn.GELU("tanh" if plan.activation == "gelu_tanh" else "none")
        if self.is_gated:
            self.gate = nn.Linear(plan.hidden_size, plan.ffn_size, bias=plan.has_bias)
        self.outer = nn.Linear(plan.ffn_size, plan.hidden_size, bias=plan.has_bias)

    def forward(self, x: Tensor) -> Tensor:
        """(…, hidden) → the same."""
        inner = self.inner(x)
        passed: Tensor = self.outer(self.activate(inner, self.gate(x) if self.is_gated else None))
        return passed

    def activate(self, inner: Tensor, gate: Tensor | None = None) -> Tensor:
        """(…, width) → the same."""
        inner = F.silu(inner) if self.is_silu else self.gelu(inner)
        return inner if gate is None else inner * gate


class MixtureOfExperts(nn.Module):
    """Feed-forward networks; each token passes through those that its router prefers."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.num_active = plan.num_active_experts
        self.router = nn.Linear(plan.hidden_size, plan.num_experts, bias=False)
        self.experts = nn.ModuleList(FeedForward(plan) for _ in range(plan.num_experts))

    def forward(self, x: Tensor) -> Tensor:
        """The sum of each token's top experts, weighed by renormalized softmax; shaped as `x`."""
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).float().softmax(-1).topk(self.num_active)
        weights = (weights / weights.sum(-1, keepdim=True)).flatten()
        order = chosen.flatten().argsort()  # by experts
        rows = order // self.num_active
        outputs = self.run_experts(tokens[rows], chosen)
        outputs = outputs * weights[order, None].type_as(outputs)
        return torch.zeros_like(tokens).index_add(0, rows, outputs.type_as(x)).view_as(x)

    def run_experts(self, x: Tensor, chosen: Tensor) -> Tensor:
        """(tokens, hidden) in the order of their experts → the same."""
        counts = chosen.flatten().bincount(minlength=len(self.experts)).tolist()  # waits for them
        parts = zip(self.experts, x.split(counts), strict=True)
        return torch.cat([expert(part) for expert, part in parts])


def contexts() -> Any:
    """Two contexts, of forward and recomputation, that keep `SAVED` and every second product."""
    count = {False: 0, True: 0}

    def policy(context: Any, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        is_kept = operation in SAVED
        if operation in PRODUCTS:
            count[context.is_recompute] += 1
            is_kept = count[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


class TransformerLayer(nn.Module):
    """Attention and feed-forward, each behind a norm and beside a residual connection."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.attention_norm = plan.norm_of(plan.hidden_size)
        self.attention = GroupedQueryAttention(plan)
        self.ffn_norm = plan.norm_of(plan.hidden_size)
        self.ffn = MixtureOfExperts(plan) if plan.num_experts > 1 else FeedForward(plan)

    def forward(self, x: Tensor, rotations: Tensor | None) -> Tensor:
        """`compute` of `x`; backward recomputes all, or what `contexts` drop, or nothing."""
        if self.plan.checkpointing == "none":
            return self.compute(x, rotations)
        how: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
        if self.plan.checkpointing == "selective":
            how["context_fn"] = contexts
        computed: Tensor = checkpoint(self.compute, x, rotations, **how)
        return computed

    def compute(self, x: Tensor, rotations: Tensor | None) -> Tensor:
        """(batch, sequence, hidden), and rotations of rotary positions → as the first."""
        x = x + self.attention(self.attention_norm(x), rotations)
        passed: Tensor = self.ffn(self.ffn_norm(x))
        return x + passed


class TransformerStage(nn.Module):
    """The layers of a stage; the first stage has the embedding too, the last one the logits."""

    def __init__(self, plan: Plan, stage: int) -> None:
        super().__init__()
        self.plan = plan
        # No buffer: in bf16 it would lose its imaginary parts.
        self.rotations: Tensor | None = None
        self.is_first, self.is_last = stage == 0, stage == plan.num_stages - 1
        rows = -(-plan.vocabulary // plan.tensor) * plan.tensor  # which the tensor axis divides
        if self.is_first:
            self.embedding = nn.Embedding(rows, plan.hidden_size)
        if plan.positions == "learned" and self.is_first:
            self.positions = nn.Embedding(plan.context_length, plan.hidden_size)
        # Named by their number in the whole model, for checkpoints and for `initialize`.
        self.layers: nn.Module = nn.ModuleDict(
            {str(number): TransformerLayer(plan) for number in plan.layers_of(stage)}
        )
        if self.is_last:
            self.norm = plan.norm_of(plan.hidden_size)
            if not plan.has_tied_embeddings:
                self.logits = nn.Linear(plan.hidden_size, rows, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (batch, sequence) or hidden states → hidden states or logits.

        With a tensor axis, hidden states between layers are this rank's part of the sequence, and
        the logits its part of the vocabulary.
        """
        x = self.embed(x) if self.is_first else x
        for layer in self.layers.children():
            x = layer(x, self.rotations)
        return self.score(self.norm(x)) if self.is_last else x

    def embed(self, tokens: Tensor) -> Tensor:
        """(batch, sequence) → (batch, sequence, hidden)."""
        x: Tensor = self.embedding(tokens)
        if self.plan.positions == "learned":
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return x

    def score(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, vocabulary)."""
        if self.plan.has_tied_embeddings:
            return F.linear(x, self.embedding.weight)
        scores: Tensor = self.logits(x)
        return scores


def cross_entropy(logits: Tensor, targets: Tensor, mesh: DeviceMesh | None) -> Tensor:
    """The mean loss over tokens, in fp32; ranks of the mesh divide the vocabulary."""
    rows = logits.flatten(0, 1).float()
    if mesh is not None and mesh.size() > 1:
        # Under `loss_parallel`, in which no rank needs the whole vocabulary.
        divided = DTensor.from_local(rows, mesh, [Shard(1)])
        loss = F.cross_entropy(divided, targets.flatten())
        assert isinstance(loss, DTensor)
        return loss.to_local()
    return F.cross_entropy(rows, targets.flatten())


# --- the layout


def divide(model: TransformerStage, mesh: DeviceMesh) -> None:
    """Apply tensor parallelism to each product, and sequence parallelism between them."""
    by_sequence = Shard(1)
    whole = tp.PrepareModuleInput(input_layouts=by_sequence, desired_input_layouts=Replicate())
    given = tp.PrepareModuleInput(
        input_layouts=(by_sequence, None), desired_input_layouts=(Replicate(), None)
    )
    # Norms of queries and keys are of heads, which are divided along dimension 2.
    by_heads = tp.SequenceParallel(sequence_dim=2, use_local_output=True)
    of_layer: dict[str, tp.ParallelStyle] = {
        "attention_norm": tp.SequenceParallel(),
        "attention": given,
        "attention.query": tp.ColwiseParallel(),
        "attention.key": tp.ColwiseParallel(),
        "attention.value": tp.ColwiseParallel(),
        "attention.query_norm": by_heads,
        "attention.key_norm": by_heads,
        "attention.output": tp.RowwiseParallel(output_layouts=by_sequence),
        "ffn_norm": tp.SequenceParallel(),
        "ffn": whole,
        "ffn.inner": tp.ColwiseParallel(),
        "ffn.gate": tp.ColwiseParallel(),
        "ffn.outer": tp.RowwiseParallel(output_layouts=by_sequence),
        # Each rank routes all tokens alike; what an expert returns is summed by an all-reduce.
        "ffn.router": tp.ColwiseParallel(output_layouts=Replicate()),
        "ffn.experts.*.inner": tp.ColwiseParallel(),
        "ffn.experts.*.gate": tp.ColwiseParallel(),
        "ffn.experts.*.outer": tp.RowwiseParallel(),
    }
    if model.plan.num_experts > 1:
        of_layer["ffn"] = tp.PrepareModuleInputOutput(
            input_layouts=by_sequence,
            desired_input_layouts=Replicate(),
            use_local_input=True,
            output_layouts=Replicate(),
            desired_output_layouts=by_sequence,
        )
    styles = {f"layers.*.{name}": style for name, style in of_layer.items()} | {
        "embedding": tp.RowwiseParallel(input_layouts=Replicate(), output_layouts=by_sequence),
        "positions": tp.RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0)),
        "norm": tp.SequenceParallel(),
        "logits": tp.ColwiseParallel(input_layouts=by_sequence),
    }
    names = {re.sub(r"\.\d+", ".*", name) for name, _ in model.named_modules()}
    there = {name: style for name, style in styles.items() if name in names}
    tp.parallelize_module(model, mesh, there)


def sharder(mesh: DeviceMesh, precision: str, sharding: str, replicas: int) -> Any:
    """`fully_shard` with mesh and precision bound: fp32 shards gathered in bf16, or HSDP's mesh."""
    policy = MixedPrecisionPolicy()
    if precision == "bf16-mixed":
        # Shards are fp32, gathered in bf16; the types are of parameters and of the reduction.
        reduced = torch.bfloat16 if sharding == "zero1" else torch.float32
        policy = MixedPrecisionPolicy(torch.bfloat16, reduced)
    if replicas > 1:
        # A replica in each node, whose ranks shard it among them.
        sizes = (replicas, mesh.size() // replicas)
        mesh = mesh._unflatten(0, sizes, ("replicas", "shards"))
    return partial(fully_shard, mesh=mesh, mp_policy=policy)


def shard(model: TransformerStage, plan: Plan, mesh: DeviceMesh) -> None:
    """Apply FSDP to each layer and the root; `fsdp` reshards after forward, but the last layer."""
    each = sharder(mesh, plan.precision, plan.sharding, plan.replicas)
    reshards = plan.reshards_to or plan.sharding == "fsdp"
    layers = list(model.layers.children())
    for layer in layers:  # the last layer's backward follows its forward
        each(layer, reshard_after_forward=False if layer is layers[-1] else reshards)
    each(model, reshard_after_forward=reshards)


@torch.no_grad()
def initialize(model: TransformerStage, device: torch.device) -> None:
    """Set weights to N(0, 0.02), norms to 1, biases to 0: seeded by name, alike in any layout."""
    for name, parameter in model.named_parameters():
        generator = torch.Generator(device).manual_seed(SEED + zlib.crc32(name.encode()))
        value = torch.zeros(parameter.shape, device=device)
        if "norm" in name and name.endswith("weight"):
            value.fill_(1.0)
        elif name.endswith("weight"):
            value.normal_(0.0, 0.02, generator=generator)
        if isinstance(parameter, DTensor):  # every rank has the whole value, so nothing is sent
            mesh, placements = parameter.device_mesh, parameter.placements
            value = distribute_tensor(value, mesh, placements, src_data_rank=None)
        parameter.copy_(value)
    if model.plan.positions == "rotary":
        model.rotations = rotations_of(model.plan, device)


def built(plan: Plan, mesh: DeviceMesh, device: torch.device, stage: int) -> nn.Module:
    """A stage's module, built without memory, divided, allocated and initialized; maybe in DDP."""
    with torch.device("meta"):
        model = TransformerStage(plan, stage)
    if plan.precision == "autocast":
        autocast = torch.autocast(device.type, torch.bfloat16)
        model.forward = autocast(model.forward)  # type: ignore[method-assign]
    if plan.tensor > 1:
        divide(model, mesh["tensor"])
    if plan.sharding != "none":
        shard(model, plan, mesh["data"])
    elif plan.precision == "bf16-mixed":
        model.to(torch.bfloat16)
    model.to_empty(device=device)
    initialize(model, device)
    if plan.sharding == "none" and plan.tensor > 1 and model.is_first:
        # DTensor computes its gradient whole; only this rank's rows of it are kept.
        model.embedding.weight.register_hook(partial(DTensor.redistribute, placements=[Shard(0)]))
    if plan.sharding == "none" and plan.data > 1:
        group, views = mesh.get_group("data"), plan.has_bucket_views
        return DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=views)
    return model


# --- the step


class MixedPrecisionOptimizer:
    """The optimizer, with fp32 copies of parameters that are bf16."""

    def __init__(self, plan: Plan, parameters: Sequence[nn.Parameter]) -> None:
        self.pairs = [(low, nn.Parameter(low.detach().float())) for low in parameters]
        self.optimizers = [optimizer_of(plan, [copy]) for _, copy in self.pairs]

    @torch.no_grad()
    def step(self) -> None:
        """Update fp32 copies one by one, each from a gradient, which is freed, and write back."""
        for (parameter, copy), optimizer in zip(self.pairs, self.optimizers, strict=True):
            if parameter.grad is not None:
                copy.grad, parameter.grad = parameter.grad.float(), None
                optimizer.step()
                copy.grad = None
                parameter.copy_(copy)


def optimizer_of(plan: Plan, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW, which decays matrices alone, or SGD without decay, with momentum where planned."""
    groups: Any = [{"params": [p for p in parameters if p.dim() > 1]}]
    groups += [{"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    if plan.optimizer == "adam":
        return torch.optim.AdamW(groups, LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    momentum = 0.9 if plan.optimizer == "momentum" else 0.0
    return torch.optim.SGD(parameters, LEARNING_RATE, momentum=momentum, foreach=False)


def clip(parameters: Sequence[nn.Parameter], mesh: DeviceMesh) -> Tensor:
    """Scale gradients to a norm of at most `MAX_NORM` over all stages; return the norm before."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    total = (norm.full_tensor() if isinstance(norm, DTensor) else norm) ** 2
    dist.all_reduce(total, group=mesh.get_group("pipeline"))
    torch.nn.utils.clip_grads_with_norm_(parameters, MAX_NORM, total.sqrt())
    return total.sqrt()


def batch(plan: Plan, path: Path | None, step: int, index: int) -> tuple[Tensor, Tensor]:
    """Inputs and next tokens (samples, sequence) of a rank: its part of a batch drawn for the step.

    Args:
        plan: sizes of a step.
        path: a file of token ids, int32; None for sequences that count up from a random token.
        step: number of the step.
        index: of the rank.
    """
    tokens, num_starts = None, plan.vocabulary
    if path is not None:
        size = path.stat().st_size // 4
        tokens = torch.from_file(str(path), shared=False, size=size, dtype=torch.int32)
        num_starts = size - plan.sequence
    generator = torch.Generator().manual_seed(SEED + step)
    starts = torch.randint(num_starts, (plan.global_batch,), generator=generator)
    places = starts.chunk(plan.data)[index][:, None] + torch.arange(plan.sequence + 1)
    whole = places % plan.vocabulary if tokens is None else tokens[places].long()
    return whole[:, :-1], whole[:, 1:]


def schedule_of(
    plan: Plan, models: Sequence[nn.Module], mesh: DeviceMesh, device: torch.device
) -> Any:
    """The GPipe, 1F1B or interleaved schedule of this rank's stages, with the loss."""
    group, total = mesh.get_group("pipeline"), plan.num_stages
    stages: list[Any] = [
        pp.PipelineStage(model, stage, total, device, group=group)
        for stage, model in zip(plan.stages_of(mesh), models, strict=True)
    ]

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        stages[-1].output_chunks.clear()  # or the logits of all microbatches stay
        return cross_entropy(logits, targets, mesh["tensor"])

    if plan.schedule == "interleaved":
        return pp.ScheduleInterleaved1F1B(stages, plan.num_microbatches, loss_fn=loss)
    single = {"gpipe": pp.ScheduleGPipe, "1f1b": pp.Schedule1F1B}[plan.schedule]
    return single(stages[0], plan.num_microbatches, loss_fn=loss)


def run_pipeline(schedule: Any, tokens: Tensor, targets: Tensor, mesh: DeviceMesh) -> Tensor:
    """Run the schedule, which sums gradients; return the mean loss, 0 before the last rank."""
    rank, losses = mesh.get_local_rank("pipeline"), list[Tensor]()
    given = (tokens,) if rank == 0 else ()
    is_last = rank == mesh["pipeline"].size() - 1
    schedule.step(*given, target=targets if is_last else None, losses=losses, return_outputs=False)
    return torch.stack(losses).mean() if is_last else torch.zeros((), device=tokens.device)


def run_model(
    plan: Plan, model: nn.Module, tokens: Tensor, targets: Tensor, mesh: DeviceMesh
) -> Tensor:
    """Sum gradients over microbatches, communicated as planned; return the mean loss."""
    count, total = plan.num_microbatches, torch.zeros((), device=tokens.device)
    microbatches = zip(tokens.chunk(count), targets.chunk(count), strict=True)
    for index, (inputs, wanted) in enumerate(microbatches):
        is_last = index == count - 1
        if isinstance(model, FSDPModule):
            # ZeRO-1 stays gathered until the last microbatch sums its gradients.
            model.set_requires_gradient_sync(is_last or plan.sharding != "zero1")
            model.set_reshard_after_backward(is_last or plan.sharding != "zero1")
            # HSDP reduces each microbatch within its replica, and the sum between replicas.
            model.set_requires_all_reduce(is_last or plan.replicas == 1)
        elif isinstance(model, DistributedDataParallel):
            model.require_backward_grad_sync = is_last
        loss = cross_entropy(model(inputs), wanted, mesh["tensor"]) / count
        loss.backward()
        total += loss.detach()
    return total


def train(plan: Plan, device: torch.device, num_steps: int, path: Path | None) -> list[Outcome]:
    """Train, and print each step; return a pair a step: loss, 0 before the last stage, and norm."""
    sizes = (plan.pipeline, plan.data, plan.tensor)
    mesh = init_device_mesh(device.type, sizes, mesh_dim_names=("pipeline", "data", "tensor"))
    if plan.tensor > 1 and plan.sharding != "none":
        # For norms of gradients, in one operation over both axes.
        mesh["data", "tensor"]._flatten()
        # The root returns a view of its logits; the loss changes nothing in place.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module")
    models = [built(plan, mesh, device, stage) for stage in plan.stages_of(mesh)]
    parameters = [parameter for model in models for parameter in model.parameters()]
    has_copies = plan.sharding == "none" and plan.precision == "bf16-mixed"
    optimizer = (MixedPrecisionOptimizer if has_copies else optimizer_of)(plan, parameters)
    schedule = schedule_of(plan, models, mesh, device) if plan.pipeline > 1 else None
    outcomes = []
    for index in range(num_steps):
        start = time.perf_counter()
        samples = batch(plan, path, index, mesh.get_local_rank("data"))
        tokens, targets = (tensor.to(device) for tensor in samples)
        with tp.loss_parallel() if plan.tensor > 1 else nullcontext():
            if schedule is not None:
                loss = run_pipeline(schedule, tokens, targets, mesh)
            else:
                loss = run_model(plan, models[0], tokens, targets, mesh)
        norm = clip(parameters, mesh)
        optimizer.step()
        for model in models:
            model.zero_grad()
        dist.all_reduce(loss, group=mesh.get_group("data"))
        outcomes.append((loss.item() / plan.data, norm.item()))
        if dist.get_rank() == dist.get_world_size() - 1:
            summary = "loss {:.4f}, norm of the gradient {:.3f}".format(*outcomes[-1])
            print(f"step {index + 1}: {summary}, {time.perf_counter() - start:.3g} s", flush=True)
    if device.type == "cuda":
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        print(
            f"rank {dist.get_rank()}: {reserved / 2**30:.1f} GiB reserved, {plan.needed_gib:.1f} "
            f"planned; {allocated / 2**30:.1f} allocated"
        )
    return outcomes


def main(words: Sequence[str] | None = None) -> list[Outcome]:
    """Train in the planned layout, as a rank of torchrun's; return (loss, norm) by step."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="a small model on these ranks")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tokens", metavar="FILE", type=Path, help="token ids, int32")
    asked = parser.parse_args(words)
    if asked.tokens and (asked.small or not asked.tokens.is_file()):
        parser.error("--small makes up its tokens" if asked.small else f"no file {asked.tokens}")
    if "RANK" not in os.environ:
        parser.error("torchrun starts this program; its first lines say how")
    num_ranks, num_local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    plan = made_small(PLAN, num_ranks) if asked.small else PLAN
    needed = plan.pipeline * plan.data * plan.tensor
    if needed != num_ranks:
        parser.error(f"this layout has {needed} ranks, and {num_ranks} were started")
    device = torch.device("cpu")
    if torch.cuda.device_count() >= num_local:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    elif not asked.small:
        parser.error("there are fewer CUDA devices than ranks; --small runs without them")
    dist.init_process_group()
    outcomes = train(plan, device, asked.steps, asked.tokens)
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return outcomes


if __name__ == "__main__":
    main()
