"""The networks that experiments train, and how a trace describes them."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor, nn

from proofbook.runners.api import Layer, Model
from proofbook.runners.closed_forms.shape import layer_parameters, whole

NORMS: dict[str, list[type[nn.Module]]] = {
    "none": [],
    "batch": [nn.BatchNorm1d],
    "layer": [nn.LayerNorm],
}


def mlp(
    widths: Sequence[int],
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
    norm: str = "none",
) -> nn.Sequential:
    """An `nn.Sequential` of linear layers, a ReLU between each two; a `norm` before the first ReLU.

    In: (samples, widths[0]). Out: logits (samples, widths[-1]).
    """
    layers: list[nn.Module] = []
    for index, (fan_in, fan_out) in enumerate(pairwise(widths)):
        if index == 1:
            layers += [of(fan_in, dtype=dtype, device=device) for of in NORMS[norm]]
        if index:
            layers.append(nn.ReLU())
        layers.append(nn.Linear(fan_in, fan_out, dtype=dtype, device=device))
    return nn.Sequential(*layers)


class ResidualLayer(nn.Module):
    """A linear layer and a ReLU, or another function, added to what came in.

    So many of them still learn. In and out: (samples, width).
    """

    def __init__(
        self,
        width: int,
        device: torch.device | None = None,
        bend: Callable[[Tensor], Tensor] = torch.relu,
    ) -> None:
        super().__init__()
        self.linear, self.bend = nn.Linear(width, width, device=device), bend
        with torch.no_grad():  # near the identity a deep stack trains from the first step
            self.linear.weight.mul_(0.2)

    def forward(self, samples: Tensor) -> Tensor:
        """Add what the layer computes to what came in."""
        return samples + self.bend(self.linear(samples))


def residual_mlp(widths: Sequence[int], device: torch.device | None = None) -> nn.Sequential:
    """An `nn.Sequential` of linear layers of these widths, all but the first and last residual."""
    first, *hidden, last = widths
    return nn.Sequential(
        nn.Linear(first, hidden[0], device=device),
        *(ResidualLayer(width, device) for width in hidden[1:]),
        nn.Linear(hidden[-1], last, device=device),
    )


def description(
    widths: Sequence[int],
    ranks: Sequence[Sequence[int]] | int,
    dtype: torch.dtype = torch.float32,
    sharded: Sequence[bool] | bool = False,
) -> Model:
    """The `Model` that a trace shows of a stack of linear layers: sizes, and ranks that hold each.

    `ranks` are those that hold each linear layer, whole or as shards, or how many hold all; whether
    they are shards, `sharded` says for all layers or for each.
    """
    size = torch.finfo(dtype).bits // 8
    counts = layer_parameters(widths)
    ranks = [range(ranks)] * len(counts) if isinstance(ranks, int) else ranks
    sharded = [sharded] * len(counts) if isinstance(sharded, bool) else sharded
    layers = [
        Layer(
            name=f"layer{index + 1}",
            kind="Linear",
            weight_shape=[widths[index + 1], widths[index]],
            num_parameters=count,
            bytes=count * size,
            ranks=list(ranks[index]),
            is_sharded=sharded[index],
        )
        for index, count in enumerate(counts)
    ]
    return whole(layers, str(dtype).removeprefix("torch."))


def described(module: nn.Module, num_ranks: int, uncut: str) -> Model:
    """The `Model` that a trace shows of a module: its leaf layers, before it is split over ranks.

    Every rank keeps layers whole whose names end in `uncut`.
    """
    layers = [
        Layer(
            name=name,
            kind=type(layer).__name__,
            weight_shape=list(layer.weight.shape),
            num_parameters=sum(p.numel() for p in layer.parameters()),
            bytes=sum(p.nbytes for p in layer.parameters()),
            ranks=list(range(num_ranks)),
            is_sharded=num_ranks > 1 and not name.endswith(uncut),
        )
        for name, layer in module.named_modules()
        if not list(layer.children())
    ]
    return whole(layers)


def flat(module: nn.Module) -> Tensor:
    """All parameters of a module in one row, detached."""
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def gradients_of(module: nn.Module) -> list[Tensor]:
    """The gradients that there are of a module's parameters."""
    return [p.grad for p in module.parameters() if p.grad is not None]


def flat_gradient(module: nn.Module) -> Tensor:
    """All gradients of a module in one row, a copy."""
    return torch.cat([gradient.reshape(-1) for gradient in gradients_of(module)])


@torch.no_grad()
def copy_row(row: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copy the values of one row into tensors, as many into each as it has."""
    pieces = row.split([tensor.numel() for tensor in tensors])
    for tensor, piece in zip(tensors, pieces, strict=True):
        tensor.copy_(piece.view_as(tensor))


@torch.no_grad()
def average(tensors: Sequence[Tensor]) -> Tensor:
    """Put the mean over all ranks into the tensors, by one all-reduce; the mean too, as one row."""
    mean = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    copy_row(mean, tensors)
    return mean


@torch.no_grad()
def grade(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    """Mean cross-entropy loss and share of samples classified rightly."""
    loss = nn.functional.cross_entropy(logits, labels)
    accuracy = (logits.argmax(1) == labels).double().mean()
    return loss.item(), accuracy.item()
