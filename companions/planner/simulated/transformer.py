"""A decoder-only transformer as public models are built, on one rank of a mesh.

In: a `RankPlan`: what one rank builds, and the layers of a stage. Out: an `nn.Module` from tokens
(batch, sequence) to logits (batch, sequence, vocabulary), or from hidden states to hidden states
where it is a stage between the ends.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from proofbook.companions.planner.simulated.axes import DividedCrossEntropy
from proofbook.companions.planner.simulated.layers import (
    FeedForward,
    GroupedQueryAttention,
    LatentAttention,
    Logits,
    MixtureOfExperts,
    RankPlan,
    dropped,
)


class TransformerLayer(nn.Module):
    """Attention and feed-forward, each between norms and beside a residual connection."""

    def __init__(self, plan: RankPlan, number: int) -> None:
        super().__init__()
        self.plan, self._dropout, shape = plan, plan.implementation.dropout, plan.shape
        before, after = (
            plan.norm_of if shape.norm_places in (place, "both") else nn.Identity
            for place in ("before", "after")
        )
        self.attention_norm = before(shape.hidden_size)
        self.attention = (LatentAttention if shape.kv_rank else GroupedQueryAttention)(plan, number)
        self.attention_end = after(shape.hidden_size)
        self.ffn_norm = before(shape.hidden_size)
        has_experts = shape.has_experts(number)
        self.ffn = MixtureOfExperts(plan) if has_experts else FeedForward(plan, shape.dense_size)
        self.ffn_end = after(shape.hidden_size)

    def forward(self, x: Tensor, rotations: Tensor | None) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, hidden)."""
        attended = self.attention_end(self.attention(self.attention_norm(x), rotations))
        x = x + dropped(attended, self._dropout)
        return x + dropped(self.ffn_end(self.ffn(self.ffn_norm(x))), self._dropout)


class RankTransformer(nn.Module):
    """The whole model, or the stage of a pipeline with the layers of these numbers.

    The first layer also means the embedding, the last one the final norm and the logits.
    """

    def __init__(self, plan: RankPlan, layers: Sequence[int] | None = None) -> None:
        super().__init__()
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
        self.layers = nn.ModuleList(TransformerLayer(plan, number) for number in own)
        if self.is_last:
            self.norm = plan.norm_of(shape.hidden_size)
        if self.is_last and not shape.has_tied_embeddings:
            self.logits = Logits(plan, rows)
        rotations = None
        if shape.positions == "rotary":
            length = min(plan.training.sequence, shape.context_length)
            width = (shape.rotary_size or shape.head_size) // 2
            rotations = torch.empty(length, width, dtype=torch.complex64)
        self.register_buffer("rotations", rotations, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (batch, sequence) or hidden states → hidden states or logits.

        With a tensor axis, hidden states between layers are this rank's part of the sequence where
        that is divided, and the logits its part of the vocabulary.
        """
        x = self._embed(x) if self.is_first else x
        for layer in self.layers:
            x = layer(x, self.rotations)
        return self._score(self.norm(x)) if self.is_last else x

    def _embed(self, tokens: Tensor) -> Tensor:
        """Embeddings of (batch, sequence) and positions: (batch, own part of sequence, hidden)."""
        axis, length = self.plan.axis, tokens.shape[1]
        x = axis.leave(self.embedding(tokens))
        if self.plan.shape.positions == "learned":
            length = axis.share(length) if axis.has_sequence_parallel else length
            x = x + self.positions(torch.arange(length, device=x.device))
        return dropped(x, self.plan.implementation.dropout)

    def _score(self, x: Tensor) -> Tensor:
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
        num = self.plan.training.loss_chunks
        parts = zip(logits.chunk(num, 1), targets.chunk(num, 1), strict=True)
        losses = [_cross_entropy(*both, axis.mesh) for both in parts]
        return torch.stack(losses).mean() if len(losses) > 1 else losses[0]


def _cross_entropy(logits: Tensor, targets: Tensor, mesh: DeviceMesh | None) -> Tensor:
    """The mean loss over tokens, in fp32; ranks of the mesh divide the vocabulary."""
    rows = logits.flatten(0, 1).float()
    if mesh is not None and mesh.size() > 1:
        # Under `loss_parallel`, in which no rank needs the whole vocabulary.
        divided = DTensor.from_local(rows, mesh, [Shard(1)])
        loss = F.cross_entropy(divided, targets.flatten())
        assert isinstance(loss, DTensor)
        return loss.to_local()
    return F.cross_entropy(rows, targets.flatten())
