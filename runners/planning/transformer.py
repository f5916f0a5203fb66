"""A decoder-only transformer as public models are built, on one rank of a mesh.

In: an `Architecture`, the tensor-parallel axis, and which layers a stage has. Out: an `nn.Module`
from tokens (batch, sequence) to logits (batch, sequence, vocabulary), or from hidden states to
hidden states where it is a stage between the ends. It is built on the meta device and never run
with values; operations are those that public implementations call (nanoGPT for GPT-2, torchtitan
for Llama), so that autograd keeps the same activations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from runners.planning.context_axis import ring_attention
from runners.planning.expert_axis import from_experts, to_experts
from runners.planning.fused_kernels import rms_norm
from runners.planning.question import Training
from runners.planning.tensor_axis import DividedCrossEntropy, TensorAxis, TorchCrossEntropy
from runners.plans.architecture import Architecture


class Groups(NamedTuple):
    """Groups of ranks besides the tensor-parallel axis; None where an axis has one rank.

    Attributes:
        context: each has another part of the sequence.
        expert: each has other experts.
    """

    context: dist.ProcessGroup | None = None
    expert: dist.ProcessGroup | None = None


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


def _norm(shape: Architecture, size: int, training: Training) -> nn.Module:
    if shape.norm == "layernorm":
        return nn.LayerNorm(size)
    return RMSNorm(size, is_fused=training.has_fused_norm)


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

    def __init__(self, shape: Architecture, axis: TensorAxis, rows: int) -> None:
        super().__init__(shape.hidden_size, rows, bias=False)
        self._axis = axis

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, rows)."""
        return self._axis.products(x, [self.weight], [None])[0]


class Attention(nn.Module):
    """Causal attention; this rank's share of the heads."""

    def __init__(
        self, shape: Architecture, axis: TensorAxis, training: Training, groups: Groups
    ) -> None:
        super().__init__()
        self._axis, self._training, self._head_size = axis, training, shape.head_size
        self._context = groups.context
        self._heads = axis.share(shape.num_heads)
        self._kv_heads = axis.share(shape.num_kv_heads)
        self._sizes = [self._heads * shape.head_size, *[self._kv_heads * shape.head_size] * 2]
        self._is_one_matrix = shape.activation == "gelu"
        if self._is_one_matrix:
            self.inputs = nn.Linear(shape.hidden_size, sum(self._sizes), bias=shape.has_bias)
        else:
            self.query, self.key, self.value = (
                nn.Linear(shape.hidden_size, size, bias=shape.has_bias) for size in self._sizes
            )
        self.output = nn.Linear(self._sizes[0], shape.hidden_size, bias=shape.has_bias)
        self.norms = nn.ModuleList(
            _norm(shape, shape.head_size, training) for _ in range(2 * shape.has_query_key_norm)
        )

    def forward(self, x: Tensor, angles: Tensor | None) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        if self._is_one_matrix:
            parts: Sequence[Tensor] = _products(self._axis, x, self.inputs)[0].split(
                self._sizes, -1
            )
        else:
            parts = _products(self._axis, x, self.query, self.key, self.value)
        queries, keys, values = (part.unflatten(-1, (-1, self._head_size)) for part in parts)
        if self.norms:
            queries, keys = self.norms[0](queries), self.norms[1](keys)
        if angles is not None:
            queries, keys = rotated(queries, angles), rotated(keys, angles)
        repeats = self._heads // self._kv_heads
        if repeats > 1 and self._context is None:
            keys, values = (_repeated(part, repeats) for part in (keys, values))
        context = self._attend(*(part.transpose(1, 2) for part in (queries, keys, values)))
        return self._axis.leave(self.output(context.transpose(1, 2).flatten(2)))

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """(batch, heads, sequence, head size) of each → the same."""
        if self._context is not None:
            return ring_attention(queries, keys, values, self._context)
        if self._training.has_fused_attention:
            return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        scores = queries @ keys.transpose(-1, -2) * (1 / math.sqrt(self._head_size))
        length = scores.shape[-1]
        ahead = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
        weights = scores.masked_fill(ahead, -1e4).softmax(-1)
        return dropped(weights, self._training.dropout) @ values


def _products(axis: TensorAxis, x: Tensor, *layers: nn.Linear) -> Sequence[Tensor]:
    return axis.products(x, [one.weight for one in layers], [one.bias for one in layers])


def _repeated(x: Tensor, times: int) -> Tensor:
    """(batch, sequence, heads, size) → (batch, sequence, heads × times, size)."""
    return x.unsqueeze(3).expand(-1, -1, -1, times, -1).flatten(2, 3)


class FeedForward(nn.Module):
    """Two matrices with GELU between them, or three with SwiGLU; this rank's share of the width."""

    def __init__(self, shape: Architecture, axis: TensorAxis) -> None:
        super().__init__()
        self._axis = axis
        width = axis.share(shape.ffn_size)
        self.inner = nn.Linear(shape.hidden_size, width, bias=shape.has_bias)
        self.gate = (
            nn.Linear(shape.hidden_size, width, bias=shape.has_bias)
            if shape.activation == "swiglu"
            else None
        )
        self.outer = nn.Linear(width, shape.hidden_size, bias=shape.has_bias)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        layers = [self.inner] if self.gate is None else [self.inner, self.gate]
        return self._axis.leave(self._finish(*_products(self._axis, x, *layers)))

    def compute(self, x: Tensor) -> Tensor:
        """The same, without what ranks send each other: every rank's result is an addend."""
        return self._finish(self.inner(x), *([] if self.gate is None else [self.gate(x)]))

    def _finish(self, inner: Tensor, gate: Tensor | None = None) -> Tensor:
        inner = F.gelu(inner) if gate is None else F.silu(inner) * gate
        result: Tensor = self.outer(inner)
        return result


class OwnExperts(nn.Module):
    """The experts of one rank."""

    def __init__(self, shape: Architecture, axis: TensorAxis, number: int) -> None:
        super().__init__()
        self._experts = nn.ModuleList(FeedForward(shape, axis) for _ in range(number))

    def forward(self, x: Tensor) -> Tensor:
        """(tokens, hidden), in the order of experts → the same."""
        parts = x.tensor_split(len(self._experts))
        experts = [one for one in self._experts if isinstance(one, FeedForward)]
        return torch.cat([e.compute(p) for e, p in zip(experts, parts, strict=True)])


class Experts(nn.Module):
    """Several feed-forward networks, of which each token passes through some.

    Every expert is taken to receive equally many tokens: who goes where follows from values.
    """

    def __init__(self, shape: Architecture, axis: TensorAxis, groups: Groups) -> None:
        super().__init__()
        self._axis, self._active = axis, shape.num_active_experts
        self._ranks = groups.expert
        self._num_own = shape.num_experts // (self._ranks.size() if self._ranks else 1)
        self.router = nn.Linear(shape.hidden_size, shape.num_experts, bias=False)
        self.experts = OwnExperts(shape, axis, self._num_own)

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
            received = to_experts(inputs, self._num_own, self._ranks)
            outputs = from_experts(self.experts(received), self._num_own, self._ranks)
        outputs = outputs * weights.flatten()[order].unsqueeze(-1).to(outputs.dtype)
        total = torch.zeros_like(tokens).index_add(0, order // self._active, outputs.to(x.dtype))
        return self._axis.leave(total.view_as(whole))


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and beside a residual connection."""

    def __init__(
        self, shape: Architecture, axis: TensorAxis, training: Training, groups: Groups
    ) -> None:
        super().__init__()
        self.attention_norm = _norm(shape, shape.hidden_size, training)
        self.attention = Attention(shape, axis, training, groups)
        self.ffn_norm = _norm(shape, shape.hidden_size, training)
        is_mixed = shape.num_experts > 1
        self.ffn = Experts(shape, axis, groups) if is_mixed else FeedForward(shape, axis)
        self._dropout = training.dropout

    def forward(self, x: Tensor, angles: Tensor | None) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        x = x + dropped(self.attention(self.attention_norm(x), angles), self._dropout)
        return x + dropped(self.ffn(self.ffn_norm(x)), self._dropout)


class Transformer(nn.Module):
    """The whole model, or the stage of a pipeline with some of its layers.

    Args:
        shape: of the whole model.
        axis: among whose ranks layers are divided.
        training: what the implementation decides, such as which kernels are fused, and the length
            of this rank's part of a sample.
        layers: numbers of the layers that this stage has; the first also means the embedding, the
            last the final norm and the logits.
        groups: of the other axes.

    Raises:
        ValueError: the axis divides the heads, or the width, not evenly.
    """

    angles: Tensor | None

    def __init__(
        self,
        shape: Architecture,
        axis: TensorAxis | None = None,
        training: Training | None = None,
        layers: Sequence[int] | None = None,
        groups: Groups | None = None,
    ) -> None:
        super().__init__()
        self._axis = axis or TensorAxis()
        groups = groups or Groups()
        training = training or Training(sequence=shape.context_length)
        own = range(shape.num_layers) if layers is None else layers
        self.is_first, self.is_last = 0 in own, shape.num_layers - 1 in own
        rows = training.vocabulary or -(-shape.vocabulary // self._axis.size) * self._axis.size
        rows = self._axis.share(rows)
        self._dropout, self._is_tied = training.dropout, shape.has_tied_embeddings
        self._has_loss_in_place = training.has_loss_in_place or self._axis.size > 1
        self._has_compiled_loss = training.has_compiled_loss
        self._has_loss_of_torch = training.has_loss_of_torch
        self._loss_chunks = training.loss_chunks
        if self.is_first or (self.is_last and self._is_tied):
            self.embedding = nn.Embedding(rows, shape.hidden_size)
        self.positions = (
            nn.Embedding(shape.context_length, shape.hidden_size)
            if self.is_first and shape.positions == "learned"
            else None
        )
        self.layers = nn.ModuleList(Layer(shape, self._axis, training, groups) for _ in own)
        if self.is_last:
            self.norm = _norm(shape, shape.hidden_size, training)
        if self.is_last and not self._is_tied:
            self.logits = Logits(shape, self._axis, rows)
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
        if self.is_first:
            x = self._embed(x)
        for layer in self.layers:
            x = layer(x, self.angles)
        if not self.is_last:
            return x
        if not self._is_tied:
            logits: Tensor = self.logits(self.norm(x))
            return logits
        return self._axis.products(self.norm(x), [self.embedding.weight], [None])[0]

    def _embed(self, tokens: Tensor) -> Tensor:
        x: Tensor = self._axis.leave(self.embedding(tokens))
        if self.positions is not None:
            length = tokens.shape[1]
            if self._axis.has_sequence_parallel:
                length = self._axis.share(length)
            x = x + self.positions(torch.arange(length, device=tokens.device))
        return dropped(x, self._dropout)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy.

        Args:
            logits: (batch, sequence, vocabulary / tensor-parallel ranks).
            targets: (batch, sequence).
        """
        rows, wanted = logits.flatten(0, 1), targets.flatten()
        if self._has_loss_of_torch:
            copied: Tensor = TorchCrossEntropy.apply(  # type: ignore[no-untyped-call]
                rows.float(), wanted, self._axis
            )
            return copied
        if self._has_loss_in_place:
            loss: Tensor = DividedCrossEntropy.apply(  # type: ignore[no-untyped-call]
                rows, wanted, self._axis, self._has_compiled_loss
            )
            return loss
        parts = zip(
            logits.chunk(self._loss_chunks, 1), targets.chunk(self._loss_chunks, 1), strict=True
        )
        losses = [F.cross_entropy(part.flatten(0, 1).float(), t.flatten()) for part, t in parts]
        return torch.stack(losses).mean() if len(losses) > 1 else losses[0]
