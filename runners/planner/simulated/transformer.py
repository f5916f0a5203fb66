"""A decoder-only transformer as public models are built, on one rank of a mesh.

In: a `RankPlan`: what one rank builds, and the layers of a stage. Out: an `nn.Module` from tokens
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

from proofbook.runners.planner import program_template as program
from proofbook.runners.planner.answers.architecture import Architecture
from proofbook.runners.planner.answers.question import Implementation, TrainingSettings
from proofbook.runners.planner.simulated.axes import (
    DividedCrossEntropy,
    RingAttention,
    TensorAxis,
    exchanged,
)
from proofbook.runners.planner.simulated.fused_kernels import EPSILON, attention, rms_norm

program.SAVED.add(torch.ops.planning.attention.default)


@dataclass(frozen=True, kw_only=True)
class RankPlan(program.Plan):
    """The part of a model that a rank builds; a group is None where an axis has one rank."""

    shape: Architecture  # of the whole model
    loss_chunks: int
    implementation: Implementation = field(default_factory=Implementation)
    axis: TensorAxis = field(default_factory=TensorAxis)  # among whose ranks layers are divided
    context: dist.ProcessGroup | None = None  # ranks of which each has another part of the sequence
    expert: dist.ProcessGroup | None = None  # ranks of which each has other experts

    @classmethod
    def of(cls, shape: Architecture, training: TrainingSettings, **how: Any) -> Self:
        """The plan of a rank whose samples have `training.sequence` tokens."""
        known = {**training.model_dump(), **shape.model_dump(), "head_size": shape.head_size}
        named = {field.name: known[field.name] for field in fields(cls) if field.name in known}
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
        """`x` (…, size) over its root mean square, times the weight; one kernel, or in fp32."""
        if self._is_fused:
            return rms_norm(x, self.weight)
        wide = x.float()
        normal = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
        return normal.type_as(x) * self.weight


def dropped(x: Tensor, probability: float) -> Tensor:
    """Dropout as a device computes it: for backward it keeps a mask of one byte an element.

    On a CPU, `F.dropout` keeps a factor of the type of `x` instead.
    """
    return torch.native_dropout(x, probability, True)[0] if probability else x


class Logits(nn.Linear):
    """The matrix of the logits; this rank's share of the vocabulary."""

    def __init__(self, plan: RankPlan, rows: int) -> None:
        super().__init__(plan.shape.hidden_size, rows, bias=False)
        self._axis = plan.axis

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, rows)."""
        return self._axis.products(x, self)[0]


class RankAttention(program.GroupedQueryAttention):
    """Causal attention of one layer, by its number; this rank's share of the heads."""

    plan: RankPlan

    def __init__(self, plan: RankPlan, layer: int) -> None:
        shape = plan.shape
        is_wide, has_norm = shape.has_wide_query_key_norm, shape.has_query_key_norm
        has_bias = shape.has_bias or shape.has_output_bias
        heads, kv_heads = (plan.axis.share(n) for n in (plan.num_heads, plan.num_kv_heads))
        plan = replace(plan, num_heads=heads, num_kv_heads=kv_heads, has_bias=has_bias)
        super().__init__(replace(plan, has_query_key_norm=has_norm and not is_wide))
        window = shape.window_of(layer)
        self._window = window if window < plan.sequence else 0
        self.sinks = nn.Parameter(torch.empty(plan.num_heads)) if shape.has_sinks else None
        matrices = self.query, self.key, self.value
        self._sizes = [matrix.out_features for matrix in matrices]
        wide = self._sizes[:2] if is_wide and has_norm else ()
        self.wide_norms = nn.ModuleList(map(plan.norm_of, wide))
        self._is_one_matrix = shape.has_fused_inputs or "glu" not in shape.activation
        if self._is_one_matrix:
            has_bias = self.query.bias is not None
            self.inputs = nn.Linear(plan.hidden_size, sum(self._sizes), bias=has_bias)
            del self.query, self.key, self.value

    def forward(self, x: Tensor, rotations: Tensor | None) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        return self.plan.axis.leave(super().forward(x, rotations))

    def project(self, x: Tensor) -> Sequence[Tensor]:
        """Queries, keys and values (batch, sequence, own heads × size), of one matrix or three."""
        if self._is_one_matrix:
            whole = self.plan.axis.products(x, self.inputs)[0]
            return torch.split(whole, self._sizes, -1)
        parts = self.plan.axis.products(x, self.query, self.key, self.value)
        wide = [norm(part) for norm, part in zip(self.wide_norms, parts, strict=False)]
        return [*wide, *parts[len(wide) :]]

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Causal attention (batch, heads, sequence, size): a ring, a kernel or plain products."""
        plan = self.plan
        if plan.context is not None:
            return RingAttention.apply(query, key, value, plan.context)
        if (repeats := query.shape[1] // key.shape[1]) > 1:
            key, value = (  # as torchtitan repeats them
                heads.transpose(1, 2).repeat_interleave(repeats, 2).transpose(1, 2)
                for heads in (key, value)
            )
        if self._window or self.sinks is not None or value.shape != query.shape:
            result: Tensor
            result, logs = attention(query, key, value, True, self._window)
            if self.sinks is not None:  # as torchtitan weighs them
                shares = torch.sigmoid(logs - self.sinks.unsqueeze(-1)).unsqueeze(-1)
                result = result * shares.type_as(result)
            return result
        if plan.implementation.has_fused_attention:
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)
        scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]))
        length = scores.shape[-1]
        ahead = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
        weights = scores.masked_fill(ahead, -1e4).softmax(-1)
        return dropped(weights, plan.implementation.dropout) @ value


class RankLatentAttention(RankAttention):
    """Attention whose keys and values come of a small vector of each token, as in DeepSeek-V2."""

    def __init__(self, plan: RankPlan, layer: int) -> None:
        super().__init__(plan, layer)
        shape, hidden, has_bias = plan.shape, plan.hidden_size, plan.shape.has_qkv_bias
        del self.query, self.key, self.value
        self._sizes, rank = [shape.head_size - shape.rotary_size, shape.value_dim], shape.query_rank
        self.queries = nn.Sequential(plan.linear(rank or hidden, plan.num_heads * shape.head_size))
        if rank:
            self.queries.insert(0, plan.linear(hidden, rank, has_bias=has_bias))
            self.queries.insert(1, plan.norm_of(rank))
        self.down = plan.linear(hidden, shape.kv_rank + shape.rotary_size, has_bias=has_bias)
        self.norm = plan.norm_of(shape.kv_rank)
        self.up = plan.linear(shape.kv_rank, plan.num_heads * sum(self._sizes))
        values = plan.num_heads * shape.value_dim
        self.output = plan.linear(values, hidden, has_bias=shape.has_output_bias)

    def forward(self, x: Tensor, rotations: Tensor | None) -> Tensor:
        """Causal attention to keys and values expanded from a latent; (batch, sequence, hidden)."""
        assert rotations is not None
        shape, heads = self.plan.shape, self.plan.num_heads
        queries = program.rotated(self.queries(x).unflatten(-1, (heads, -1)), rotations)
        latent, turning = self.down(x).split([shape.kv_rank, shape.rotary_size], -1)
        turned = program.rotated(turning.unsqueeze(2), rotations).expand(-1, -1, heads, -1)
        expanded = self.up(self.norm(latent)).unflatten(-1, (heads, -1))
        keys, values = expanded.split(self._sizes, -1)
        parts = queries, torch.cat([turned, keys], -1), values
        context = self.attend(*(part.transpose(1, 2) for part in parts))
        result: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return result


class RankFeedForward(program.FeedForward):
    """The network that each token passes through by itself; this rank's share of the width."""

    compute = program.FeedForward.forward  # an addend, without what ranks send each other

    def __init__(self, plan: RankPlan, size: int = 0) -> None:
        width, shape = plan.axis.share(size or plan.ffn_size), plan.shape
        has_bias = shape.has_bias or shape.has_ffn_bias
        super().__init__(replace(plan, ffn_size=width, has_bias=has_bias))
        self._axis, self._is_clamped = plan.axis, shape.activation == "clamped_swiglu"
        self._has_both = self.is_gated and shape.has_fused_inputs  # in one matrix
        if self._has_both:
            self.inner = nn.Linear(plan.hidden_size, 2 * width, bias=has_bias)
            self.is_gated = False
            del self.gate

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        matrices = (self.inner, self.gate) if self.is_gated else (self.inner,)
        return self._axis.leave(self.outer(self.activate(*self._axis.products(x, *matrices))))

    def activate(self, inner: Tensor, gate: Tensor | None = None) -> Tensor:
        """`inner` activated, times `gate`, or the second half of `inner` if fused; (…, width)."""
        if self._has_both:
            inner, gate = inner.chunk(2, -1)
        if self._is_clamped and gate is not None:  # as in GPT-OSS
            inner, gate = inner.clamp(max=7.0), gate.clamp(-7.0, 7.0)
            return (gate + 1) * (inner * torch.sigmoid(inner * 1.702))
        return super().activate(inner, gate)


class LocalExperts(nn.ModuleList):
    """The experts of one rank."""

    def __init__(self, plan: RankPlan, number: int) -> None:
        super().__init__(RankFeedForward(plan) for _ in range(number))

    def forward(self, x: Tensor) -> Tensor:
        """(tokens, hidden), in the order of experts → the same."""
        experts = (expert for expert in self if isinstance(expert, RankFeedForward))
        parts = zip(experts, x.tensor_split(len(self)), strict=True)
        return torch.cat([expert.compute(part) for expert, part in parts])


class RankExperts(program.MixtureOfExperts):
    """A mixture of experts: each token passes through some of the feed-forward networks.

    Every expert is taken to receive equally many tokens of each rank: who goes where follows from
    values. Where ranks divide the experts, tokens go to the ranks of theirs, and back.
    """

    def __init__(self, plan: RankPlan) -> None:
        super().__init__(replace(plan, num_experts=1))  # which is replaced
        self._axis, self._ranks, shape = plan.axis, plan.expert, plan.shape
        self._num_experts = plan.num_experts
        self._num_own = plan.num_experts // (plan.expert.size() if plan.expert else 1)
        self.experts = LocalExperts(plan, self._num_own)
        self.router = nn.Linear(plan.hidden_size, plan.num_experts, bias=shape.has_ffn_bias)
        self.shared = RankFeedForward(plan, shape.shared_size) if shape.shared_size else None
        self.gate = nn.Linear(plan.hidden_size, 1, bias=False) if shape.has_shared_gate else None

    def forward(self, x: Tensor) -> Tensor:
        """The sum of each token's experts and the shared network; (batch, sequence, hidden)."""
        whole = self._axis.enter(x)
        total = super().forward(whole)
        if self.shared is not None:
            shared = self.shared.compute(whole)
            total = total + (shared if self.gate is None else self.gate(whole).sigmoid() * shared)
        return self._axis.leave(total)

    def run_experts(self, x: Tensor, _: Tensor) -> Tensor:
        """Outputs (tokens, hidden) in experts' order: sent to their ranks, run, and sent back."""
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
        """Tokens of this rank's experts, from all ranks → tokens of all experts, from this rank."""
        num_ranks = self._num_experts // self._num_own
        by_rank = x.view(self._num_own, num_ranks, -1, x.shape[-1]).transpose(0, 1)
        return self._exchanged(by_rank.flatten(0, 2))

    def _exchanged(self, x: Tensor) -> Tensor:
        """All-to-all of equal parts, forward and for gradients."""
        return exchanged(x, self._all_to_all, self._all_to_all)

    def _all_to_all(self, sent: Tensor) -> Tensor:
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent.contiguous(), group=self._ranks)
        return received


class RankLayer(program.TransformerLayer):
    """Attention and feed-forward, each between norms and beside a residual connection."""

    def __init__(self, plan: RankPlan, number: int) -> None:
        nn.Module.__init__(self)
        self.plan, self._dropout, shape = plan, plan.implementation.dropout, plan.shape
        before, after = (
            plan.norm_of if shape.norm_places in (place, "both") else nn.Identity
            for place in ("before", "after")
        )
        self.attention_norm = before(plan.hidden_size)
        self.attention = (RankLatentAttention if shape.kv_rank else RankAttention)(plan, number)
        self.attention_end = after(plan.hidden_size)
        self.ffn_norm = before(plan.hidden_size)
        has_experts = shape.has_experts(number)
        self.ffn = RankExperts(plan) if has_experts else RankFeedForward(plan, shape.dense_size)
        self.ffn_end = after(plan.hidden_size)

    def compute(self, x: Tensor, rotations: Tensor | None) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        attended = self.attention_end(self.attention(self.attention_norm(x), rotations))
        x = x + dropped(attended, self._dropout)
        return x + dropped(self.ffn_end(self.ffn(self.ffn_norm(x))), self._dropout)


class RankTransformer(program.TransformerStage):
    """The whole model, or the stage of a pipeline with the layers of these numbers.

    The first layer also means the embedding, the last one the final norm and the logits.
    """

    plan: RankPlan

    def __init__(self, plan: RankPlan, layers: Sequence[int] | None = None) -> None:
        nn.Module.__init__(self)
        self.plan, shape, axis = plan, plan.shape, plan.axis
        own = range(shape.num_layers) if layers is None else layers
        self.is_first, self.is_last = 0 in own, shape.num_layers - 1 in own
        rows = axis.share(
            plan.implementation.vocabulary or -(-shape.vocabulary // axis.size) * axis.size
        )
        if self.is_first or (self.is_last and shape.has_tied_embeddings):
            self.embedding = nn.Embedding(rows, shape.hidden_size)
        if self.is_first and shape.positions == "learned":
            self.positions = nn.Embedding(shape.context_length, shape.hidden_size)
        self.layers = nn.ModuleList(RankLayer(plan, number) for number in own)
        if self.is_last:
            self.norm = plan.norm_of(shape.hidden_size)
        if self.is_last and not shape.has_tied_embeddings:
            self.logits = Logits(plan, rows)
        rotations = None
        if shape.positions == "rotary":
            length = min(plan.sequence, shape.context_length)
            width = (shape.rotary_size or shape.head_size) // 2
            rotations = torch.empty(length, width, dtype=torch.complex64)
        self.register_buffer("rotations", rotations, persistent=False)

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings of (batch, sequence) and positions: (batch, own part of sequence, hidden)."""
        axis, length = self.plan.axis, tokens.shape[1]
        x = axis.leave(self.embedding(tokens))
        if self.plan.positions == "learned":
            length = axis.share(length) if axis.has_sequence_parallel else length
            x = x + self.positions(torch.arange(length, device=x.device))
        return dropped(x, self.plan.implementation.dropout)

    def score(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, vocabulary / tensor-parallel ranks)."""
        if self.plan.shape.has_tied_embeddings:
            return self.plan.axis.products(x, self.embedding)[0]
        scores: Tensor = self.logits(x)
        return scores

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of tokens, fused, or by `loss_chunks`; targets (batch, sequence)."""
        axis, implementation = self.plan.axis, self.plan.implementation
        if implementation.has_loss_in_place:
            rows, wanted = logits.flatten(0, 1), targets.flatten()
            return DividedCrossEntropy.apply(rows, wanted, axis, implementation.has_compiled_loss)
        num = self.plan.loss_chunks
        parts = zip(logits.chunk(num, 1), targets.chunk(num, 1), strict=True)
        losses = [program.cross_entropy(*both, axis.mesh) for both in parts]
        return torch.stack(losses).mean() if len(losses) > 1 else losses[0]
