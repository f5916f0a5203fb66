"""A decoder-only transformer as public models are built, on one rank of a mesh.

In: a `Part`: what one rank builds, and the layers of a stage. Out: an `nn.Module` from tokens
(batch, sequence) to logits (batch, sequence, vocabulary), or from hidden states to hidden states
where it is a stage between the ends. Layers are those of the written program
(`program_template.py`), and what no program has is added here: windows, sinks, latent attention,
dropout, other norms, and the axes of tensors, contexts and experts as Megatron-LM divides them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from runners.planner import program_template as program
from runners.planner.answers.architecture import Architecture
from runners.planner.answers.question import Implementation, Training
from runners.planner.simulated.context_axis import ring_attention
from runners.planner.simulated.fused_kernels import attention, rms_norm
from runners.planner.simulated.tensor_axis import DividedCrossEntropy, TensorAxis, exchanged

program.SAVED.add(torch.ops.planning.attention.default)


@dataclass(frozen=True, kw_only=True)
class Part(program.Plan):
    """What a rank builds of a model; a group is None where an axis has one rank.

    Attributes:
        shape: of the whole model.
        implementation: such as which kernels are fused.
        axis: among whose ranks layers are divided.
        context: ranks of which each has another part of the sequence.
        expert: ranks of which each has other experts.
    """

    shape: Architecture
    loss_chunks: int
    implementation: Implementation = field(default_factory=Implementation)
    axis: TensorAxis = field(default_factory=TensorAxis)
    context: dist.ProcessGroup | None = None
    expert: dist.ProcessGroup | None = None

    @classmethod
    def of(cls, shape: Architecture, training: Training, **how: Any) -> Self:
        """The part of a rank that sees so many tokens of a sample."""
        known = {**training.model_dump(), **shape.model_dump(), "head_size": shape.head_size}
        named = {one.name: known[one.name] for one in fields(cls) if one.name in known}
        return cls(shape=shape, **named, **how)

    def norm_of(self, size: int) -> nn.Module:
        """A norm over the last dimension."""
        if self.norm == "layernorm":
            return nn.LayerNorm(size)
        return RMSNorm(size, is_fused=self.implementation.has_fused_norm)

    def linear(self, num_inputs: int, num_outputs: int, *, has_bias: bool = False) -> nn.Linear:
        """A matrix, with a bias where all of the model's have one, or this one has."""
        return nn.Linear(num_inputs, num_outputs, bias=self.has_bias or has_bias)


class RMSNorm(nn.RMSNorm):
    """One kernel, which keeps its input; or the operations that it consists of."""

    def __init__(self, size: int, *, is_fused: bool) -> None:
        super().__init__(size)
        self._is_fused = is_fused

    def forward(self, x: Tensor) -> Tensor:
        """(…, size) → (…, size)."""
        if self._is_fused:
            return rms_norm(x, self.weight)
        wide = x.float()
        normal = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return normal.type_as(x) * self.weight


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


class Attention(program.Attention):
    """Causal attention of the layer with this number; this rank's share of the heads."""

    def __init__(self, part: Part, layer: int) -> None:
        shape = part.shape
        is_wide, has_norm = shape.has_wide_query_key_norm, shape.has_query_key_norm
        has_bias = shape.has_bias or shape.has_output_bias
        heads, kv_heads = (part.axis.share(n) for n in (part.num_heads, part.num_kv_heads))
        part = replace(part, num_heads=heads, num_kv_heads=kv_heads, has_bias=has_bias)
        super().__init__(replace(part, has_query_key_norm=has_norm and not is_wide))
        self._part, window = part, shape.window_of(layer)
        self._window = window if window < part.sequence else 0
        self.sinks = nn.Parameter(torch.empty(part.num_heads)) if shape.has_sinks else None
        matrices = self.query, self.key, self.value
        self._sizes = [one.out_features for one in matrices]
        wide = self._sizes[:2] if is_wide and has_norm else ()
        self.wide_norms = nn.ModuleList(map(part.norm_of, wide))
        self._is_one_matrix = shape.has_fused_inputs or "glu" not in shape.activation
        if self._is_one_matrix:
            has_bias = self.query.bias is not None
            self.inputs = nn.Linear(part.hidden_size, sum(self._sizes), bias=has_bias)
            del self.query, self.key, self.value

    def forward(self, x: Tensor, rotations: Tensor | None) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        return self._part.axis.leave(super().forward(x, rotations))

    def project(self, x: Tensor) -> Sequence[Tensor]:
        """Queries, keys and values of this rank's heads."""
        if self._is_one_matrix:
            whole = self._part.axis.products(x, self.inputs)[0]
            return torch.split(whole, self._sizes, -1)
        parts = self._part.axis.products(x, self.query, self.key, self.value)
        wide = [norm(one) for norm, one in zip(self.wide_norms, parts, strict=False)]
        return [*wide, *parts[len(wide) :]]

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """(batch, heads, sequence, head size) of each → the same."""
        part = self._part
        if part.context is not None:
            return ring_attention(query, key, value, part.context)
        if (repeats := query.shape[1] // key.shape[1]) > 1:
            by_tokens = (one.transpose(1, 2) for one in (key, value))  # as torchtitan repeats them
            key, value = (one.repeat_interleave(repeats, 2).transpose(1, 2) for one in by_tokens)
        if self._window or self.sinks is not None or value.shape != query.shape:
            result: Tensor
            result, logs = attention(query, key, value, True, self._window)
            if self.sinks is not None:  # as torchtitan weighs them
                shares = torch.sigmoid(logs - self.sinks.unsqueeze(-1)).unsqueeze(-1)
                result = result * shares.type_as(result)
            return result
        if part.implementation.has_fused_attention:
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)
        scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]))
        length = scores.shape[-1]
        ahead = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
        weights = scores.masked_fill(ahead, -1e4).softmax(-1)
        return dropped(weights, part.implementation.dropout) @ value


class LatentAttention(Attention):
    """Attention whose keys and values come of a small vector of each token, as in DeepSeek-V2."""

    def __init__(self, part: Part, layer: int) -> None:
        super().__init__(part, layer)
        shape, hidden, has_bias = part.shape, part.hidden_size, part.shape.has_qkv_bias
        del self.query, self.key, self.value
        self._sizes, rank = [shape.head_size - shape.rotary_size, shape.value_dim], shape.query_rank
        self.queries = nn.Sequential(part.linear(rank or hidden, part.num_heads * shape.head_size))
        if rank:
            self.queries.insert(0, part.linear(hidden, rank, has_bias=has_bias))
            self.queries.insert(1, part.norm_of(rank))
        self.down = part.linear(hidden, shape.kv_rank + shape.rotary_size, has_bias=has_bias)
        self.norm = part.norm_of(shape.kv_rank)
        self.up = part.linear(shape.kv_rank, part.num_heads * sum(self._sizes))
        values = part.num_heads * shape.value_dim
        self.output = part.linear(values, hidden, has_bias=shape.has_output_bias)

    def forward(self, x: Tensor, rotations: Tensor | None) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        assert rotations is not None
        shape, heads = self._part.shape, self._part.num_heads
        queries = program.rotated(self.queries(x).unflatten(-1, (heads, -1)), rotations)
        latent, turning = self.down(x).split([shape.kv_rank, shape.rotary_size], -1)
        turned = program.rotated(turning.unsqueeze(2), rotations).expand(-1, -1, heads, -1)
        expanded = self.up(self.norm(latent)).unflatten(-1, (heads, -1))
        keys, values = expanded.split(self._sizes, -1)
        parts = queries, torch.cat([turned, keys], -1), values
        context = self.attend(*(part.transpose(1, 2) for part in parts))
        result: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return result


class FeedForward(program.FeedForward):
    """The network that each token passes through by itself; this rank's share of the width."""

    compute = program.FeedForward.forward  # an addend, without what ranks send each other

    def __init__(self, part: Part, size: int = 0) -> None:
        width, shape = part.axis.share(size or part.ffn_size), part.shape
        has_bias = shape.has_bias or shape.has_ffn_bias
        super().__init__(replace(part, ffn_size=width, has_bias=has_bias))
        self._axis, self._is_clamped = part.axis, shape.activation == "clamped_swiglu"
        self._has_both = self.is_gated and shape.has_fused_inputs  # in one matrix
        if self._has_both:
            self.inner = nn.Linear(part.hidden_size, 2 * width, bias=has_bias)
            self.is_gated = False
            del self.gate

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        matrices = (self.inner, self.gate) if self.is_gated else (self.inner,)
        return self._axis.leave(self.outer(self.activate(*self._axis.products(x, *matrices))))

    def activate(self, inner: Tensor, gate: Tensor | None = None) -> Tensor:
        """(…, width) → the same."""
        if self._has_both:
            inner, gate = inner.chunk(2, -1)
        if self._is_clamped and gate is not None:  # as in GPT-OSS
            inner, gate = inner.clamp(max=7.0), gate.clamp(-7.0, 7.0)
            return (gate + 1) * (inner * torch.sigmoid(inner * 1.702))
        return super().activate(inner, gate)


class OwnExperts(nn.ModuleList):
    """The experts of one rank."""

    def __init__(self, part: Part, number: int) -> None:
        super().__init__(FeedForward(part) for _ in range(number))

    def forward(self, x: Tensor) -> Tensor:
        """(tokens, hidden), in the order of experts → the same."""
        experts = (one for one in self if isinstance(one, FeedForward))
        parts = zip(experts, x.tensor_split(len(self)), strict=True)
        return torch.cat([expert.compute(part) for expert, part in parts])


class Experts(program.Experts):
    """Several feed-forward networks, of which each token passes through some.

    Every expert is taken to receive equally many tokens of each rank: who goes where follows from
    values. Where ranks divide the experts, tokens go to the ranks of theirs, and back.
    """

    def __init__(self, part: Part) -> None:
        super().__init__(replace(part, num_experts=1))  # which is replaced
        self._axis, self._ranks, shape = part.axis, part.expert, part.shape
        self._num_experts = part.num_experts
        self._num_own = part.num_experts // (part.expert.size() if part.expert else 1)
        self.experts = OwnExperts(part, self._num_own)
        self.router = nn.Linear(part.hidden_size, part.num_experts, bias=shape.has_ffn_bias)
        self.shared = FeedForward(part, shape.shared_size) if shape.shared_size else None
        self.gate = nn.Linear(part.hidden_size, 1, bias=False) if shape.has_shared_gate else None

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        whole = self._axis.enter(x)
        total = super().forward(whole)
        if self.shared is not None:
            shared = self.shared.compute(whole)
            total = total + (shared if self.gate is None else self.gate(whole).sigmoid() * shared)
        return self._axis.leave(total)

    def run_experts(self, x: Tensor, _: Tensor) -> Tensor:
        """(tokens, hidden), in the order of experts → the same."""
        outputs: Tensor
        if self._ranks is None:
            outputs = self.experts(x)
        else:
            lacking = -len(x) % self._num_experts  # so that each has equally many
            sent = F.pad(x, (0, 0, 0, lacking)) if lacking else x
            outputs = self._from_experts(self.experts(self._to_experts(sent)))[: len(x)]
        return outputs

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


class Layer(program.Layer):
    """Attention and feed-forward, each between norms and beside a residual connection."""

    def __init__(self, part: Part, number: int) -> None:
        nn.Module.__init__(self)
        self.plan, self._dropout, shape = part, part.implementation.dropout, part.shape
        before, after = (
            part.norm_of if shape.norm_places in (place, "both") else nn.Identity
            for place in ("before", "after")
        )
        self.attention_norm = before(part.hidden_size)
        self.attention = (LatentAttention if shape.kv_rank else Attention)(part, number)
        self.attention_end = after(part.hidden_size)
        self.ffn_norm = before(part.hidden_size)
        has_experts = shape.has_experts(number)
        self.ffn = Experts(part) if has_experts else FeedForward(part, shape.dense_size)
        self.ffn_end = after(part.hidden_size)

    def compute(self, x: Tensor, rotations: Tensor | None) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        attended = self.attention_end(self.attention(self.attention_norm(x), rotations))
        x = x + dropped(attended, self._dropout)
        return x + dropped(self.ffn_end(self.ffn(self.ffn_norm(x))), self._dropout)


class Transformer(nn.Module):
    """The whole model, or the stage of a pipeline with some of its layers.

    Args:
        part: what this rank builds.
        layers: numbers of the layers that this stage has; the first also means the embedding, the
            last the final norm and the logits.
    """

    rotations: Tensor | None

    def __init__(self, part: Part, layers: Sequence[int] | None = None) -> None:
        super().__init__()
        self._part = part
        shape, axis = part.shape, part.axis
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
            self.norm = part.norm_of(shape.hidden_size)
        if self.is_last and not shape.has_tied_embeddings:
            self.logits = Logits(part, rows)
        if shape.positions == "rotary":
            length = min(part.sequence, shape.context_length)
            width = (shape.rotary_size or shape.head_size) // 2
            rotations = torch.empty(length, width, dtype=torch.complex64)
            self.register_buffer("rotations", rotations, persistent=False)
        else:
            self.register_buffer("rotations", None)

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
            x = layer(x, self.rotations)
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
        num = self._part.loss_chunks
        parts = zip(logits.chunk(num, 1), targets.chunk(num, 1), strict=True)
        losses = [program.cross_entropy(*both, axis.mesh) for both in parts]
        return torch.stack(losses).mean() if len(losses) > 1 else losses[0]
