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
from runners.planner.simulated.fused_kernels import rms_norm
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
        angles: (sequence, head size / 2), complex.
    """
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
    """Causal attention; this rank's share of the heads."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self._part, shape = part, part.shape
        self._heads = part.axis.share(shape.num_heads)
        self._kv_heads = part.axis.share(shape.num_kv_heads)
        self._sizes = [self._heads * shape.head_size, *[self._kv_heads * shape.head_size] * 2]
        self._is_one_matrix = shape.activation == "gelu"
        if self._is_one_matrix:
            self.inputs = part.linear(shape.hidden_size, sum(self._sizes))
        else:
            self.query, self.key, self.value = (
                part.linear(shape.hidden_size, size, has_bias=shape.has_qkv_bias)
                for size in self._sizes
            )
        self.output = part.linear(self._sizes[0], shape.hidden_size)
        self.norms = nn.ModuleList(
            part.norm(shape.head_size) for _ in range(2 * shape.has_query_key_norm)
        )

    def forward(self, x: Tensor, angles: Tensor | None) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        axis = self._part.axis
        if self._is_one_matrix:
            parts: Sequence[Tensor] = axis.products(x, self.inputs)[0].split(self._sizes, -1)
        else:
            parts = axis.products(x, self.query, self.key, self.value)
        size = self._part.shape.head_size
        queries, keys, values = (part.unflatten(-1, (-1, size)) for part in parts)
        if self.norms:
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
        if self._part.implementation.has_fused_attention:
            return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        scores = queries @ keys.transpose(-1, -2) * (1 / math.sqrt(queries.shape[-1]))
        length = scores.shape[-1]
        ahead = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
        weights = scores.masked_fill(ahead, -1e4).softmax(-1)
        return dropped(weights, self._part.implementation.dropout) @ values


class FeedForward(nn.Module):
    """Two matrices with GELU between them, or three with SwiGLU; this rank's share of the width."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self._axis, hidden = part.axis, part.shape.hidden_size
        width = part.axis.share(part.shape.ffn_size)
        num_inner = 2 if part.shape.activation == "swiglu" else 1
        self.inner = nn.ModuleList(part.linear(hidden, width) for _ in range(num_inner))
        self.outer = part.linear(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        return self._axis.leave(self._finish(*self._axis.products(x, *self.inner)))

    def compute(self, x: Tensor) -> Tensor:
        """The same, without what ranks send each other: every rank's result is an addend."""
        return self._finish(*(one(x) for one in self.inner))

    def _finish(self, inner: Tensor, gate: Tensor | None = None) -> Tensor:
        inner = F.gelu(inner) if gate is None else F.silu(inner) * gate
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
        self.router = nn.Linear(part.shape.hidden_size, self._num_experts, bias=False)
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
    """Attention and feed-forward, each behind a norm and beside a residual connection."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.attention_norm = part.norm(part.shape.hidden_size)
        self.attention = Attention(part)
        self.ffn_norm = part.norm(part.shape.hidden_size)
        self.ffn = Experts(part) if part.shape.num_experts > 1 else FeedForward(part)
        self._dropout = part.implementation.dropout

    def forward(self, x: Tensor, angles: Tensor | None) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        x = x + dropped(self.attention(self.attention_norm(x), angles), self._dropout)
        return x + dropped(self.ffn(self.ffn_norm(x)), self._dropout)


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
        self.layers = nn.ModuleList(Layer(part) for _ in own)
        if self.is_last:
            self.norm = part.norm(shape.hidden_size)
        if self.is_last and not shape.has_tied_embeddings:
            self.logits = Logits(part, rows)
        if shape.positions == "rotary":
            length = min(training.sequence, shape.context_length)
            angles = torch.empty(length, shape.head_size // 2, dtype=torch.complex64)
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
