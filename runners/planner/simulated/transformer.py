"""A decoder-only transformer as public models are built, on one rank of a mesh.

In: a `Part`: what one rank builds, and the layers of a stage. Out: an `nn.Module` from tokens
(batch, sequence) to logits (batch, sequence, vocabulary), or from hidden states to hidden states
where it is a stage between the ends. It is built on the meta device and never run with values;
operations are those that public implementations call (nanoGPT for GPT-2, torchtitan for Llama), so
that autograd keeps the same activations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from runners.planner.answers.architecture import Architecture
from runners.planner.answers.question import Implementation, Training
from runners.planner.simulated.context_axis import ring_attention
from runners.planner.simulated.fused_kernels import attention, rms_norm
from runners.planner.simulated.tensor_axis import (
    DividedCrossEntropy,
    TensorAxis,
    TorchCrossEntropy,
    exchanged,
)


@dataclass(frozen=True)
class Part:
    """What a rank builds of a model; a group is None where an axis has one rank.

    Attributes:
        shape: of the whole model.
        training: with the length of this rank's part of a sample.
        implementation: such as which kernels are fused.
        axis: among whose ranks layers are divided.
        context: ranks of which each has another part of the sequence.
        expert: ranks of which each has other experts.
    """

    shape: Architecture
    training: Training
    implementation: Implementation = field(default_factory=Implementation)
    axis: TensorAxis = field(default_factory=TensorAxis)
    context: dist.ProcessGroup | None = None
    expert: dist.ProcessGroup | None = None

    def norm(self, size: int) -> nn.Module:
        """A norm over the last dimension."""
        if self.shape.norm == "layernorm":
            return nn.LayerNorm(size)
        return RMSNorm(size, is_fused=self.implementation.has_fused_norm)

    def linear(self, num_inputs: int, num_outputs: int, *, has_bias: bool = False) -> nn.Linear:
        """A matrix, with a bias where all of the model's have one, or this one has."""
        return nn.Linear(num_inputs, num_outputs, bias=self.shape.has_bias or has_bias)


class RMSNorm(nn.Module):
    """A weight for each element, and nothing to shift it.

    Args:
        size: of the last dimension.
        is_fused: one kernel, which keeps its input; else the operations that it consists of.
    """

    def __init__(self, size: int, *, is_fused: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self._is_fused = is_fused

    def forward(self, x: Tensor) -> Tensor:
        """(…, size) → (…, size)."""
        if self._is_fused:
            return rms_norm(x, self.weight)
        wide = x.float()
        normal = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return normal.type_as(x) * self.weight


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary positions, in fp32 and complex numbers, as torchtitan applies them.

    Args:
        x: (batch, sequence, heads, head size).
        angles: (sequence, head size / 2), complex; narrower ones turn the first elements alone.
    """
    if (size := 2 * angles.shape[-1]) < x.shape[-1]:
        turning, staying = x.split([size, x.shape[-1] - size], -1)
        return torch.cat([rotated(turning, angles), staying], -1)
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    turned = pairs * angles[: x.shape[1]].view(1, x.shape[1], 1, -1)
    return torch.view_as_real(turned).flatten(3).type_as(x)


def dropped(x: Tensor, probability: float) -> Tensor:
    """Dropout as a device computes it: for backward it keeps a mask of one byte an element.

    On a CPU, `F.dropout` keeps a factor of the type of `x` instead.
    """
    return torch.native_dropout(x, probability, True)[0] if probability else x


class Logits(nn.Linear):
    """The matrix of the logits; this rank's share of the vocabulary."""

    def __init__(self, part: Part, rows: int) -> None:
        super().__init__(part.shape.hidden_size, rows, bias=False)
        self._axis = part.axis

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, rows)."""
        return self._axis.products(x, self)[0]


class Attention(nn.Module):
    """Causal attention of the layer with this number; this rank's share of the heads."""

    def __init__(self, part: Part, layer: int) -> None:
        super().__init__()
        self._part, shape = part, part.shape
        window = shape.window_of(layer)
        self._window = window if window < part.training.sequence else 0
        self._heads = part.axis.share(shape.num_heads)
        self.sinks = nn.Parameter(torch.empty(self._heads)) if shape.has_sinks else None
        self._build(shape)

    def _build(self, shape: Architecture) -> None:
        part, hidden, has_bias = self._part, shape.hidden_size, shape.has_qkv_bias
        self._kv_heads = part.axis.share(shape.num_kv_heads)
        self._sizes = [self._heads * shape.head_size, *[self._kv_heads * shape.head_size] * 2]
        self._is_one_matrix = shape.has_fused_inputs or "glu" not in shape.activation
        if self._is_one_matrix:
            self.inputs = part.linear(hidden, sum(self._sizes), has_bias=has_bias)
        else:
            self.query, self.key, self.value = (
                part.linear(hidden, size, has_bias=has_bias) for size in self._sizes
            )
        self.output = part.linear(self._sizes[0], hidden, has_bias=shape.has_output_bias)
        sizes = self._sizes[:2] if shape.has_wide_query_key_norm else [shape.head_size] * 2
        self.norms = nn.ModuleList(map(part.norm, sizes if shape.has_query_key_norm else ()))

    def forward(self, x: Tensor, angles: Tensor | None) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        axis = self._part.axis
        if self._is_one_matrix:
            parts: Sequence[Tensor] = axis.products(x, self.inputs)[0].split(self._sizes, -1)
        else:
            parts = axis.products(x, self.query, self.key, self.value)
        size, is_wide = self._part.shape.head_size, self._part.shape.has_wide_query_key_norm
        if is_wide:
            parts = [self.norms[0](parts[0]), self.norms[1](parts[1]), parts[2]]
        queries, keys, values = (part.unflatten(-1, (-1, size)) for part in parts)
        if self.norms and not is_wide:
            queries, keys = self.norms[0](queries), self.norms[1](keys)
        if angles is not None:
            queries, keys = rotated(queries, angles), rotated(keys, angles)
        repeats = self._heads // self._kv_heads
        if repeats > 1 and self._part.context is None:
            keys, values = (
                part.unsqueeze(3).expand(-1, -1, -1, repeats, -1).flatten(2, 3)
                for part in (keys, values)
            )
        context = self._attend(*(part.transpose(1, 2) for part in (queries, keys, values)))
        return axis.leave(self.output(context.transpose(1, 2).flatten(2)))

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """(batch, heads, sequence, head size) of each → the same."""
        if self._part.context is not None:
            return ring_attention(queries, keys, values, self._part.context)
        if self._window or self.sinks is not None or values.shape != queries.shape:
            result: Tensor
            result, logs = attention(queries, keys, values, True, self._window)
            if self.sinks is not None:  # as torchtitan weighs them
                shares = torch.sigmoid(logs - self.sinks.unsqueeze(-1)).unsqueeze(-1)
                result = result * shares.type_as(result)
            return result
        if self._part.implementation.has_fused_attention:
            return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        scores = queries @ keys.transpose(-1, -2) * (1 / math.sqrt(queries.shape[-1]))
        length = scores.shape[-1]
        ahead = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
        weights = scores.masked_fill(ahead, -1e4).softmax(-1)
        return dropped(weights, self._part.implementation.dropout) @ values


class LatentAttention(Attention):
    """Attention whose keys and values come of a small vector of each token, as in DeepSeek-V2."""

    def _build(self, shape: Architecture) -> None:
        part, hidden, has_bias = self._part, shape.hidden_size, shape.has_qkv_bias
        self._sizes, rank = [shape.head_size - shape.rotary_size, shape.value_dim], shape.query_rank
        self.queries = nn.Sequential(part.linear(rank or hidden, self._heads * shape.head_size))
        if rank:
            self.queries.insert(0, part.linear(hidden, rank, has_bias=has_bias))
            self.queries.insert(1, part.norm(rank))
        self.down = part.linear(hidden, shape.kv_rank + shape.rotary_size, has_bias=has_bias)
        self.norm = part.norm(shape.kv_rank)
        self.up = part.linear(shape.kv_rank, self._heads * sum(self._sizes))
        values = self._heads * shape.value_dim
        self.output = part.linear(values, hidden, has_bias=shape.has_output_bias)

    def forward(self, x: Tensor, angles: Tensor | None) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        assert angles is not None
        heads, shape = self._heads, self._part.shape
        queries = rotated(self.queries(x).unflatten(-1, (heads, -1)), angles)
        latent, turning = self.down(x).split([shape.kv_rank, shape.rotary_size], -1)
        turned = rotated(turning.unsqueeze(2), angles).expand(-1, -1, heads, -1)
        expanded = self.up(self.norm(latent)).unflatten(-1, (heads, -1))
        keys, values = expanded.split(self._sizes, -1)
        parts = queries, torch.cat([turned, keys], -1), values
        context = self._attend(*(part.transpose(1, 2) for part in parts))
        result: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return result


class FeedForward(nn.Module):
    """Two matrices with GELU between them, or three with a gate; this rank's share of the width."""

    def __init__(self, part: Part, size: int = 0) -> None:
        super().__init__()
        self._axis, shape = part.axis, part.shape
        self._activation, has_bias = shape.activation, shape.has_ffn_bias
        self._is_gated = "glu" in shape.activation
        hidden, width = shape.hidden_size, part.axis.share(size or shape.ffn_size)
        widths = [2 * width] if shape.has_fused_inputs else [width] * (1 + self._is_gated)
        self.inner = nn.ModuleList(part.linear(hidden, one, has_bias=has_bias) for one in widths)
        self.outer = part.linear(width, hidden, has_bias=has_bias)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        return self._axis.leave(self._finish(*self._axis.products(x, *self.inner)))

    def compute(self, x: Tensor) -> Tensor:
        """The same, without what ranks send each other: every rank's result is an addend."""
        return self._finish(*(one(x) for one in self.inner))

    def _finish(self, inner: Tensor, gate: Tensor | None = None) -> Tensor:
        if gate is None and self._is_gated:
            inner, gate = inner.chunk(2, -1)
        if gate is None:
            inner = F.gelu(inner)
        elif self._activation == "clamped_swiglu":  # of GPT-OSS
            inner, gate = inner.clamp(max=7.0), gate.clamp(-7.0, 7.0)
            inner = (gate + 1) * (inner * torch.sigmoid(inner * 1.702))
        else:
            inner = (F.silu if self._activation == "swiglu" else F.gelu)(inner) * gate
        result: Tensor = self.outer(inner)
        return result


class OwnExperts(nn.Module):
    """The experts of one rank."""

    def __init__(self, part: Part, number: int) -> None:
        super().__init__()
        self._experts = nn.ModuleList(FeedForward(part) for _ in range(number))

    def forward(self, x: Tensor) -> Tensor:
        """(tokens, hidden), in the order of experts → the same."""
        parts = x.tensor_split(len(self._experts))
        experts = [one for one in self._experts if isinstance(one, FeedForward)]
        return torch.cat([e.compute(p) for e, p in zip(experts, parts, strict=True)])


class Experts(nn.Module):
    """Several feed-forward networks, of which each token passes through some.

    Every expert is taken to receive equally many tokens of each rank: who goes where follows from
    values. Where ranks divide the experts, tokens go to the ranks of theirs, and back.
    """

    def __init__(self, part: Part) -> None:
        super().__init__()
        self._axis, self._active = part.axis, part.shape.num_active_experts
        self._ranks = part.expert
        self._num_experts = part.shape.num_experts
        self._num_own = self._num_experts // (self._ranks.size() if self._ranks else 1)
        hidden, shared = part.shape.hidden_size, part.shape.shared_size
        self.router = nn.Linear(hidden, self._num_experts, bias=part.shape.has_ffn_bias)
        self.shared = FeedForward(part, shared) if shared else None
        self.gate = nn.Linear(hidden, 1, bias=False) if part.shape.has_shared_gate else None
        self.experts = OwnExperts(part, self._num_own)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        whole = self._axis.enter(x)
        tokens = whole.flatten(0, 1)
        weights, chosen = self.router(tokens).float().softmax(-1).topk(self._active)
        order = chosen.flatten().argsort()
        inputs = tokens[order // self._active]
        if self._ranks is None:
            outputs = self.experts(inputs)
        else:
            received = self._to_experts(inputs)
            outputs = self._from_experts(self.experts(received))
        outputs = outputs * weights.flatten()[order].unsqueeze(-1).to(outputs.dtype)
        total = torch.zeros_like(tokens).index_add(0, order // self._active, outputs.to(x.dtype))
        if self.shared is not None:
            shared = self.shared.compute(tokens)
            total = total + (shared if self.gate is None else self.gate(tokens).sigmoid() * shared)
        return self._axis.leave(total.view_as(whole))

    def _to_experts(self, x: Tensor) -> Tensor:
        """Tokens of all experts, from this rank → tokens of this rank's experts, from all ranks."""
        received = self._exchanged(x)
        by_rank = received.view(-1, self._num_own, len(x) // self._num_experts, x.shape[-1])
        return by_rank.transpose(0, 1).flatten(0, 2)

    def _from_experts(self, x: Tensor) -> Tensor:
        """The way back."""
        num_ranks = self._num_experts // self._num_own
        by_rank = x.view(self._num_own, num_ranks, -1, x.shape[-1]).transpose(0, 1)
        return self._exchanged(by_rank.flatten(0, 2))

    def _exchanged(self, x: Tensor) -> Tensor:
        """Every rank gives each an equal part, and has one of each; of gradients likewise."""
        return exchanged(x, self._all_to_all, self._all_to_all)

    def _all_to_all(self, sent: Tensor) -> Tensor:
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent.contiguous(), group=self._ranks)
        return received


class Layer(nn.Module):
    """Attention and feed-forward, each between norms and beside a residual connection."""

    def __init__(self, part: Part, number: int) -> None:
        super().__init__()
        shape, places = part.shape, part.shape.norm_places
        before, after = (
            part.norm if places in (place, "both") else nn.Identity for place in ("before", "after")
        )
        self.attention_norm = before(shape.hidden_size)
        self.attention = (LatentAttention if shape.kv_rank else Attention)(part, number)
        self.attention_end = after(shape.hidden_size)
        self.ffn_norm = before(shape.hidden_size)
        dense = shape.dense_size
        self.ffn = Experts(part) if shape.has_experts(number) else FeedForward(part, dense)
        self.ffn_end = after(shape.hidden_size)
        self._dropout = part.implementation.dropout

    def forward(self, x: Tensor, angles: Tensor | None) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        ends = self.attention_end, self.ffn_end
        x = x + dropped(ends[0](self.attention(self.attention_norm(x), angles)), self._dropout)
        return x + dropped(ends[1](self.ffn(self.ffn_norm(x))), self._dropout)


class Transformer(nn.Module):
    """The whole model, or the stage of a pipeline with some of its layers.

    Args:
        part: what this rank builds.
        layers: numbers of the layers that this stage has; the first also means the embedding, the
            last the final norm and the logits.
    """

    angles: Tensor | None

    def __init__(self, part: Part, layers: Sequence[int] | None = None) -> None:
        super().__init__()
        self._part = part
        shape, training, axis = part.shape, part.training, part.axis
        own = range(shape.num_layers) if layers is None else layers
        self.is_first, self.is_last = 0 in own, shape.num_layers - 1 in own
        rows = axis.share(
            part.implementation.vocabulary or -(-shape.vocabulary // axis.size) * axis.size
        )
        if self.is_first or (self.is_last and shape.has_tied_embeddings):
            self.embedding = nn.Embedding(rows, shape.hidden_size)
        self.positions = (
            nn.Embedding(shape.context_length, shape.hidden_size)
            if self.is_first and shape.positions == "learned"
            else None
        )
        self.layers = nn.ModuleList(Layer(part, number) for number in own)
        if self.is_last:
            self.norm = part.norm(shape.hidden_size)
        if self.is_last and not shape.has_tied_embeddings:
            self.logits = Logits(part, rows)
        if shape.positions == "rotary":
            length = min(training.sequence, shape.context_length)
            width = (shape.rotary_size or shape.head_size) // 2
            angles = torch.empty(length, width, dtype=torch.complex64)
            self.register_buffer("angles", angles, persistent=False)
        else:
            self.register_buffer("angles", None)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (batch, sequence), or hidden states, → logits, or hidden states.

        With sequence parallelism hidden states are (batch, sequence / ranks, hidden).
        """
        axis, shape = self._part.axis, self._part.shape
        if self.is_first:
            length = axis.share(x.shape[1]) if axis.has_sequence_parallel else x.shape[1]
            x = axis.leave(self.embedding(x))
            if self.positions is not None:
                x = x + self.positions(torch.arange(length, device=x.device))
            x = dropped(x, self._part.implementation.dropout)
        for layer in self.layers:
            x = layer(x, self.angles)
        if self.is_last and shape.has_tied_embeddings:
            x = axis.products(self.norm(x), self.embedding)[0]
        elif self.is_last:
            x = self.logits(self.norm(x))
        return x

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy.

        Args:
            logits: (batch, sequence, vocabulary / tensor-parallel ranks).
            targets: (batch, sequence).
        """
        axis, implementation = self._part.axis, self._part.implementation
        if implementation.has_loss_in_place:
            rows, wanted = logits.flatten(0, 1), targets.flatten()
            return DividedCrossEntropy.apply(rows, wanted, axis, implementation.has_compiled_loss)
        one = F.cross_entropy if axis.size == 1 else partial(TorchCrossEntropy.apply, axis)
        num = self._part.training.loss_chunks
        parts = zip(logits.chunk(num, 1), targets.chunk(num, 1), strict=True)
        losses = [one(part.flatten(0, 1).float(), t.flatten()) for part, t in parts]
        return torch.stack(losses).mean() if len(losses) > 1 else losses[0]
