"""The layers of public transformers, each as one rank of a mesh has it.

In: a `RankPlan`: the model, its training, and the ranks among which Megatron-LM divides layers, a
sequence and experts. Out: attention, feed-forward networks, mixtures of experts, norms and the
matrix of the logits, as modules of this rank's share of the width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from proofbook.companions.planner.answers.architecture import Architecture
from proofbook.companions.planner.answers.question import Implementation, TrainingSettings
from proofbook.companions.planner.simulated.axes import RingAttention, TensorAxis, exchanged
from proofbook.companions.planner.simulated.fused_kernels import EPSILON, attention, rms_norm


@dataclass(frozen=True)
class RankPlan:
    """The part of a model that a rank builds; a group is None where an axis has one rank."""

    shape: Architecture  # of the whole model
    training: TrainingSettings  # whose samples have as many tokens as this rank has of them
    implementation: Implementation = field(default_factory=Implementation)
    axis: TensorAxis = field(default_factory=TensorAxis)  # among whose ranks layers are divided
    context: dist.ProcessGroup | None = None  # ranks of which each has another part of the sequence
    expert: dist.ProcessGroup | None = None  # ranks of which each has other experts

    def norm_of(self, size: int) -> nn.Module:
        """A norm over the last dimension."""
        if self.shape.norm == "layernorm":
            return nn.LayerNorm(size)
        return RMSNorm(size, is_fused=self.implementation.has_fused_norm)

    def linear(self, num_inputs: int, num_outputs: int, *, has_bias: bool = False) -> nn.Linear:
        """A matrix, with a bias where all of the model's have one, or this one has."""
        return nn.Linear(num_inputs, num_outputs, bias=self.shape.has_bias or has_bias)


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


# --- attention


def rotated(x: Tensor, rotations: Tensor) -> Tensor:
    """`x` (batch, sequence, heads, head size), each pair of neighbours turned by `rotations`.

    Pairs are turned in fp32; fewer rotations leave the last elements as they are.
    """
    if (size := 2 * rotations.shape[-1]) < x.shape[-1]:
        turning, staying = x.split([size, x.shape[-1] - size], -1)
        return torch.cat([rotated(turning, rotations), staying], -1)
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotations[:, None]).flatten(3).type_as(x)


class Attention(nn.Module):
    """Causal attention of one layer, by its number; this rank's share of the heads."""

    def __init__(self, plan: RankPlan, layer: int) -> None:
        super().__init__()
        self.plan, shape = plan, plan.shape
        self.num_heads = plan.axis.share(shape.num_heads)
        window = shape.window_of(layer)
        self._window = window if window < plan.training.sequence else 0
        self.sinks = nn.Parameter(torch.empty(self.num_heads)) if shape.has_sinks else None

    def forward(self, x: Tensor, rotations: Tensor | None) -> Tensor:
        """Self-attention of `x` (batch, sequence, hidden), heads turned by `rotations`."""
        return self.plan.axis.leave(self.compute(x, rotations))

    def compute(self, x: Tensor, rotations: Tensor | None) -> Tensor:
        """This rank's addend of `forward`, of its heads."""
        raise NotImplementedError

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


class GroupedQueryAttention(Attention):
    """Attention whose queries, keys and values are products of the hidden state."""

    def __init__(self, plan: RankPlan, layer: int) -> None:
        super().__init__(plan, layer)
        shape, hidden, has_bias = plan.shape, plan.shape.hidden_size, plan.shape.has_qkv_bias
        keys = plan.axis.share(shape.num_kv_heads)
        self._sizes = [n * shape.head_size for n in (self.num_heads, keys, keys)]
        is_one = shape.has_fused_inputs or "glu" not in shape.activation  # matrix of all three
        widths = [sum(self._sizes)] if is_one else self._sizes
        normed = self._sizes[:2] if shape.has_wide_query_key_norm else [shape.head_size] * 2
        inputs = nn.ModuleList(plan.linear(hidden, n, has_bias=has_bias) for n in widths)
        if not is_one:  # the order of parameters decides where they lie
            self.inputs = inputs
        self.output = plan.linear(self._sizes[0], hidden, has_bias=shape.has_output_bias)
        self.norms = nn.ModuleList(map(plan.norm_of, normed if shape.has_query_key_norm else ()))
        self.inputs = inputs

    def compute(self, x: Tensor, rotations: Tensor | None) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        parts, size = self._project(x), self.plan.shape.head_size
        query, key, value = (part.unflatten(-1, (-1, size)) for part in parts)
        if self.norms and not self.plan.shape.has_wide_query_key_norm:
            query, key = self.norms[0](query), self.norms[1](key)
        if rotations is not None:
            query, key = rotated(query, rotations), rotated(key, rotations)
        context = self.attend(*(part.transpose(1, 2) for part in (query, key, value)))
        result: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return result

    def _project(self, x: Tensor) -> Sequence[Tensor]:
        """Queries, keys and values (batch, sequence, own heads × size), of one matrix or three."""
        parts = self.plan.axis.products(x, *self.inputs)
        if len(parts) == 1:
            parts = torch.split(parts[0], self._sizes, -1)
        if not self.plan.shape.has_wide_query_key_norm:
            return parts
        normed = [norm(part) for norm, part in zip(self.norms, parts, strict=False)]
        return [*normed, *parts[len(normed) :]]


class LatentAttention(Attention):
    """Attention whose keys and values come of a small vector of each token, as in DeepSeek-V2."""

    def __init__(self, plan: RankPlan, layer: int) -> None:
        super().__init__(plan, layer)
        shape, heads, has_bias = plan.shape, self.num_heads, plan.shape.has_qkv_bias
        hidden, rank = shape.hidden_size, shape.query_rank
        self.output = plan.linear(heads * shape.value_dim, hidden, has_bias=shape.has_output_bias)
        self._sizes = [shape.head_size - shape.rotary_size, shape.value_dim]
        self.queries = nn.Sequential(plan.linear(rank or hidden, heads * shape.head_size))
        if rank:
            self.queries.insert(0, plan.linear(hidden, rank, has_bias=has_bias))
            self.queries.insert(1, plan.norm_of(rank))
        self.down = plan.linear(hidden, shape.kv_rank + shape.rotary_size, has_bias=has_bias)
        self.norm = plan.norm_of(shape.kv_rank)
        self.up = plan.linear(shape.kv_rank, heads * sum(self._sizes))

    def compute(self, x: Tensor, rotations: Tensor | None) -> Tensor:
        """Attention to keys and values expanded from a latent; (batch, sequence, hidden)."""
        assert rotations is not None
        shape, heads = self.plan.shape, self.num_heads
        queries = rotated(self.queries(x).unflatten(-1, (heads, -1)), rotations)
        latent, turning = self.down(x).split([shape.kv_rank, shape.rotary_size], -1)
        turned = rotated(turning.unsqueeze(2), rotations).expand(-1, -1, heads, -1)
        expanded = self.up(self.norm(latent)).unflatten(-1, (heads, -1))
        keys, values = expanded.split(self._sizes, -1)
        parts = queries, torch.cat([turned, keys], -1), values
        context = self.attend(*(part.transpose(1, 2) for part in parts))
        result: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return result


# --- feed-forward networks


class FeedForward(nn.Module):
    """The network that each token passes through by itself; this rank's share of the width."""

    def __init__(self, plan: RankPlan, size: int = 0) -> None:
        super().__init__()
        shape, self._axis = plan.shape, plan.axis
        hidden, width = shape.hidden_size, plan.axis.share(size or shape.ffn_size)
        self._activation, is_gated = shape.activation, "glu" in shape.activation
        self._has_both = is_gated and shape.has_fused_inputs  # in one matrix
        widths = [2 * width] if self._has_both else [width] * (1 + is_gated)
        has_bias = shape.has_ffn_bias
        self.inner = nn.ModuleList(plan.linear(hidden, n, has_bias=has_bias) for n in widths)
        self.outer = plan.linear(width, hidden, has_bias=has_bias)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        return self._axis.leave(self.outer(self._activate(*self._axis.products(x, *self.inner))))

    def compute(self, x: Tensor) -> Tensor:
        """(…, hidden) → the same: an addend, without what ranks send each other."""
        inner, is_gated = self.inner[0](x), len(self.inner) > 1
        passed: Tensor = self.outer(self._activate(inner, self.inner[1](x) if is_gated else None))
        return passed

    def _activate(self, inner: Tensor, gate: Tensor | None = None) -> Tensor:
        """`inner` activated, times `gate`, or the second half of `inner` if fused; (…, width)."""
        if self._has_both:
            inner, gate = inner.chunk(2, -1)
        if self._activation == "clamped_swiglu" and gate is not None:  # as in GPT-OSS
            inner, gate = inner.clamp(max=7.0), gate.clamp(-7.0, 7.0)
            return (gate + 1) * (inner * torch.sigmoid(inner * 1.702))
        if self._activation == "swiglu":
            inner = F.silu(inner)
        else:
            inner = F.gelu(inner, approximate="tanh" if "tanh" in self._activation else "none")
        return inner if gate is None else inner * gate


class LocalExperts(nn.ModuleList):
    """The experts of one rank."""

    def __init__(self, plan: RankPlan, number: int) -> None:
        super().__init__(FeedForward(plan) for _ in range(number))

    def forward(self, x: Tensor) -> Tensor:
        """(tokens, hidden), in the order of experts → the same."""
        experts = (expert for expert in self if isinstance(expert, FeedForward))
        parts = zip(experts, x.tensor_split(len(self)), strict=True)
        return torch.cat([expert.compute(part) for expert, part in parts])


class MixtureOfExperts(nn.Module):
    """Feed-forward networks; each token passes through those that its router prefers.

    Every expert is taken to receive equally many tokens of each rank: who goes where follows from
    values. Where ranks divide the experts, tokens go to the ranks of theirs, and back.
    """

    def __init__(self, plan: RankPlan) -> None:
        super().__init__()
        shape, self._axis, self._ranks = plan.shape, plan.axis, plan.expert
        self._num_active, self._num_experts = shape.num_active_experts, shape.num_experts
        self._num_own = shape.num_experts // (plan.expert.size() if plan.expert else 1)
        self.router = nn.Linear(shape.hidden_size, shape.num_experts, bias=shape.has_ffn_bias)
        self.experts = LocalExperts(plan, self._num_own)
        self.shared = FeedForward(plan, shape.shared_size) if shape.shared_size else None
        has_gate = shape.has_shared_gate
        self.gate = nn.Linear(shape.hidden_size, 1, bias=False) if has_gate else None

    def forward(self, x: Tensor) -> Tensor:
        """The sum of each token's experts and the shared network; (batch, sequence, hidden)."""
        whole = self._axis.enter(x)
        total = self._of_experts(whole)
        if self.shared is not None:
            shared = self.shared.compute(whole)
            total = total + (shared if self.gate is None else self.gate(whole).sigmoid() * shared)
        return self._axis.leave(total)

    def _of_experts(self, x: Tensor) -> Tensor:
        """The sum of each token's top experts, weighed by renormalized softmax; shaped as `x`."""
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).float().softmax(-1).topk(self._num_active)
        weights = (weights / weights.sum(-1, keepdim=True)).flatten()
        order = chosen.flatten().argsort()  # by experts
        rows = order // self._num_active
        outputs = self._run(tokens[rows])
        outputs = outputs * weights[order, None].type_as(outputs)
        return torch.zeros_like(tokens).index_add(0, rows, outputs.type_as(x)).view_as(x)

    def _run(self, x: Tensor) -> Tensor:
        """Outputs (tokens, hidden) in experts' order: sent to their ranks, run, and sent back."""
        if self._ranks is None:
            outputs: Tensor = self.experts(x)
            return outputs
        lacking = -len(x) % self._num_experts  # so that each has equally many
        sent = F.pad(x, (0, 0, 0, lacking)) if lacking else x
        return self._from_experts(self.experts(self._to_experts(sent)))[: len(x)]

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
