"""A small GPT: the network of every experiment about transformers; `shape.py` has its closed forms.

Blocks of causal attention and a mlp, each behind a layer norm, as in GPT-2. The projections
are linear layers of their own (`query`, `key`, `value`, `out`, `up`, `down`), so that a plan of
tensor parallelism can split them by columns and by rows.
"""

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from proofbook.runners.closed_forms.shape import TransformerShape as TransformerShape
from proofbook.runners.training.rank import Rank


class CausalAttention(nn.Module):
    """Causal self-attention. In and out: (samples, length, width)."""

    def __init__(self, shape: TransformerShape, device: torch.device | None = None) -> None:
        super().__init__()
        self.head_width = shape.width // shape.num_heads
        self.query = nn.Linear(shape.width, shape.width, device=device)
        self.key = nn.Linear(shape.width, shape.width, device=device)
        self.value = nn.Linear(shape.width, shape.width, device=device)
        self.out = nn.Linear(shape.width, shape.width, device=device)

    def forward(self, tokens: Tensor) -> Tensor:
        """Causal attention of the heads held here: (samples, length, width) → the same."""
        query, key, value = (
            split(tokens).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for split in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return result


class MLP(nn.Module):
    """Two linear layers with a GELU between. In and out: (…, width)."""

    def __init__(self, shape: TransformerShape, device: torch.device | None = None) -> None:
        super().__init__()
        self.up = nn.Linear(shape.width, shape.hidden, device=device)
        self.down = nn.Linear(shape.hidden, shape.width, device=device)

    def forward(self, tokens: Tensor) -> Tensor:
        """(…, width) → (…, width), through a hidden layer."""
        result: Tensor = self.down(nn.functional.gelu(self.up(tokens)))
        return result


class GPTBlock(nn.Module):
    """Attention and a mlp, each added to what came in. In and out: (samples, length, width)."""

    def __init__(self, shape: TransformerShape, device: torch.device | None = None) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.width, device=device)
        self.attention = CausalAttention(shape, device)
        self.mlp_norm = nn.LayerNorm(shape.width, device=device)
        self.mlp = MLP(shape, device)

    def forward(self, tokens: Tensor) -> Tensor:
        """Add attention and MLP to the tokens: (batch, length, width) → the same."""
        tokens = tokens + self.attention(self.attention_norm(tokens))
        result: Tensor = tokens + self.mlp(self.mlp_norm(tokens))
        return result


class Embedding(nn.Module):
    """Tokens and their positions as features. (samples, length) → (samples, length, width)."""

    def __init__(self, shape: TransformerShape, device: torch.device | None = None) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width, device=device)
        self.positions = nn.Embedding(shape.context, shape.width, device=device)

    def forward(self, tokens: Tensor) -> Tensor:
        """Look both up and add them."""
        places = torch.arange(tokens.shape[-1], device=tokens.device)
        result: Tensor = self.tokens(tokens) + self.positions(places)
        return result


class Head(nn.Module):
    """The last norm, and a score for each token. In: (…, width). Out: (…, vocabulary)."""

    def __init__(self, shape: TransformerShape, device: torch.device | None = None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.width, device=device)
        self.scores = nn.Linear(shape.width, shape.vocabulary, bias=False, device=device)

    def forward(self, tokens: Tensor) -> Tensor:
        """Score every token of the vocabulary as the next one."""
        result: Tensor = self.scores(self.norm(tokens))
        return result


class SmallGPT(nn.Sequential):
    """Embedding, blocks, head, in a row: cut anywhere, the parts are stages of a pipeline.

    In: tokens (samples, length). Out: logits (samples, length, vocabulary).
    """

    def __init__(self, shape: TransformerShape, device: torch.device | None = None) -> None:
        super().__init__(
            Embedding(shape, device),
            *(GPTBlock(shape, device) for _ in range(shape.num_layers)),
            Head(shape, device),
        )
        self.shape = shape

    @property
    def blocks(self) -> list[GPTBlock]:
        """The blocks in their order; each takes (samples, length, width) and gives the same."""
        return [one for one in self if isinstance(one, GPTBlock)]


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over all positions; logits (…, vocabulary), targets (…)."""
    return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def next_token_step(model: nn.Module, tokens: Tensor, targets: Tensor) -> float:
    """Forward and backward of a model that takes its sequences in one piece; their mean loss."""
    loss = next_token_loss(model(tokens), targets)
    loss.backward()
    return loss.item()


def count_operations(rank: Rank, model: nn.Module, tokens: Tensor, targets: Tensor) -> None:
    """Record a step's FLOPs on the rank, as training runs it and with attention in plain products.

    Torch's counter has no formula for the CPU's fused attention, and passes over it in silence.
    """
    rank.measure("num_counted_flops", _counted(model, tokens, targets), unit="FLOP")
    with sdpa_kernel(SDPBackend.MATH):
        rank.measure("num_counted_plain_flops", _counted(model, tokens, targets), unit="FLOP")


def _counted(model: nn.Module, tokens: Tensor, targets: Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        next_token_step(model, tokens, targets)
    model.zero_grad()
    return int(counter.get_total_flops())
