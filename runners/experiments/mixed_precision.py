"""Mixed precision: which tensors get smaller, which do not, and what happens to small gradients.

A stack of layers under Adam: in fp32, under autocast, and with parameters that are bf16. A scale of
the loss can be so large that it overflows; with few samples, copies of the weights outweigh what
activations save.

    python -m runners run mixed_precision
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.functional import cross_entropy

from proofbook.runners.api import Count, Declaration, Factor, Setting
from proofbook.runners.closed_forms.shape import FLOAT_BYTES, mlp_parameters
from proofbook.runners.closed_forms.training_settings import StackSettings
from proofbook.runners.training.networks import flat, flat_gradient
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.steps import stack_for


def plain(rank: Rank[Settings]) -> None:
    """All in fp32."""
    _train(rank, stack_for(rank))


def autocast(rank: Rank[Autocast]) -> None:
    """Layers compute in a narrow dtype; parameters, gradients and moments stay in fp32."""
    _train(rank, stack_for(rank), getattr(torch, rank.settings.dtype))


def scaled(rank: Rank[Scaled]) -> None:
    """Build and train a stack under autocast with a `GradScaler`; record updates and halvings."""
    settings = rank.settings
    scaler = GradScaler(rank.device.type, init_scale=settings.initial_scale)
    optimizer = _train(rank, stack_for(rank), getattr(torch, settings.dtype), scaler)
    if not rank.is_metered:
        steps = [int(state["step"]) for state in optimizer.state.values()]
        rank.measure("num_updates", max(steps, default=0))
        halvings = math.log2(settings.initial_scale / scaler.get_scale())
        rank.measure("num_halvings", round(halvings), unit="halvings")


def narrow(rank: Rank[Narrow]) -> None:
    """Parameters and gradients in bf16; Adam may keep a master copy of them in fp32."""
    settings, model = rank.settings, stack_for(rank, dtype=torch.bfloat16)
    optimizer = LowAdam(model.parameters(), settings.learning_rate, settings.keeps_master)
    _train(rank, model, optimizer=optimizer)


def _train(
    rank: Rank[Settings],
    model: nn.Module,
    dtype: torch.dtype | None = None,
    scaler: GradScaler | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> torch.optim.Optimizer:
    """Train on one batch: the forward pass under autocast, backward from the scaled loss.

    Phases are marked, because the scaler works in backward and in the update as well. A scaler
    that is not enabled passes everything through.
    """
    settings, scaler = rank.settings, scaler or GradScaler(enabled=False)
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    features, labels = _batch(rank, next(model.parameters()).dtype)

    def mean_loss() -> Tensor:
        with torch.autocast(rank.device.type, dtype, enabled=dtype is not None):
            logits = model(features)
        return cross_entropy(logits.float(), labels)

    if not rank.is_metered and features.dtype == torch.float32:
        exact = cross_entropy(model(features), labels)
        _compare(rank, list(model.parameters()), exact, scaler.scale(mean_loss()))
    rank.watch(model, optimizer)
    before = None if rank.is_metered else flat(model).float()
    for index in rank.steps(settings.num_steps):
        with rank.phase("forward"):
            loss = mean_loss()
        with rank.phase("backward"):
            scaler.scale(loss).backward()
        with rank.phase("optimizer"):
            scaler.step(optimizer)  # skips the update where a gradient is not finite
            scaler.update()
        if index == 0 and before is not None:
            _measure_unchanged(rank, model, optimizer, before)
        optimizer.zero_grad()
    rank.epoch(1, loss=loss.item(), num_samples=len(labels))
    return optimizer


def _batch(rank: Rank[Settings], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Samples with labels that a fixed random layer gives them."""
    settings = rank.settings
    with rank.phase("samples"):
        source = torch.Generator().manual_seed(rank.seed)
        features = torch.randn(settings.batch_size, settings.width, generator=source)
        teacher = torch.randn(settings.width, settings.width, generator=source)
        labels = (features @ teacher).argmax(1).to(rank.device)
        features = features.to(rank.device, dtype)
        rank.inputs(features, labels)
    return features, labels


class LowAdam(torch.optim.Optimizer):
    """Adam for narrow parameters: all of it as narrow as they are, unless it `keeps_master`.

    Then it updates a copy in fp32 and rounds it into the parameters; the means are fp32 too.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], learning_rate: float, keeps_master: bool
    ) -> None:
        super().__init__(parameters, {})
        self.keeps_master = keeps_master
        self.learning_rate, self.num_steps = learning_rate, 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ANN401
        """Update every parameter that has a gradient, one after another."""
        self.num_steps += 1
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                self._update(parameter, self.state[parameter])

    def _update(self, parameter: nn.Parameter, state: dict[str, Tensor]) -> None:
        dtype = torch.float32 if self.keeps_master else parameter.dtype
        if not state:
            state["mean"] = torch.zeros_like(parameter, dtype=dtype)
            state["square"] = torch.zeros_like(parameter, dtype=dtype)
            if self.keeps_master:
                state["master"] = parameter.detach().to(dtype, copy=True)
        assert parameter.grad is not None
        gradient = parameter.grad.to(dtype)
        state["mean"].lerp_(gradient, 1 - BETAS[0])
        state["square"].mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        corrections = [1 - beta**self.num_steps for beta in BETAS]
        bottom = (state["square"] / corrections[1]).sqrt_().add_(EPSILON)
        target = state.get("master", parameter)
        target.addcdiv_(state["mean"], bottom, value=-self.learning_rate / corrections[0])
        if self.keeps_master:
            parameter.copy_(target)


def _compare(
    rank: Rank[Settings], parameters: list[nn.Parameter], exact: Tensor, own: Tensor
) -> None:
    """The gradient of `own`, a scaled loss in this precision, beside that of `exact`, in fp32."""
    wanted = _joined(torch.autograd.grad(exact, parameters))
    scale = (own / exact.detach()).detach()
    gradient = _joined(torch.autograd.grad(own, parameters)) / scale
    is_finite, is_there = torch.isfinite(gradient), wanted != 0
    vanished = (is_there & (gradient == 0)).sum() / is_there.sum()
    rank.measure("vanished_share", vanished.item(), unit="share")
    is_tiny = wanted.abs() <= SMALLEST_HALF / 2
    rank.measure("num_not_finite", int((~is_finite).sum()))
    rank.measure("num_below_half", int((is_there & is_tiny).sum()))
    for name, cast in (("zero", wanted.half()), ("zero_bf16", wanted.bfloat16())):
        rank.measure(f"num_cast_to_{name}", int((is_there & (cast == 0)).sum()), unit="gradients")


def _measure_unchanged(
    rank: Rank[Settings], model: nn.Module, optimizer: torch.optim.Optimizer, before: Tensor
) -> None:
    """The share of values with a gradient that the first update left as they were."""
    kept = [optimizer.state[p].get("master", p) for p in model.parameters()]
    after = _joined([value.detach().float() for value in kept])
    moves = flat_gradient(model) != 0
    unchanged = (after == before) & moves
    rank.measure("unchanged_share", (unchanged.sum() / moves.sum()).item(), unit="share")


def _joined(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


QUESTION = "How much memory does a lower precision save, and what accuracy does it lose?"
SMALLEST_HALF = 2.0**-24  # of fp16; half of it and all below is rounded to zero
BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Settings(StackSettings):
    """A stack of equal layers, in fp32."""

    width: Count = 128
    num_layers: Count = 8
    batch_size: Count = 256
    num_steps: Count = 9
    learning_rate: Factor = 0.003

    def closed_forms(self) -> dict[str, Setting]:
        """What one layer puts out in fp32, and the weights and biases of all layers."""
        return {
            "activation_bytes": FLOAT_BYTES * self.width * self.batch_size,
            "num_parameters": mlp_parameters(self.widths),
        }


class Autocast(Settings):
    """Layers compute in this dtype."""

    dtype: Literal["bfloat16", "float16"] = "bfloat16"

    def closed_forms(self) -> dict[str, Setting]:
        """Also the narrow copies of weights that backward needs: all but the first layer's."""
        num_copied = self.width * self.width * (self.num_layers - 1)
        return {**super().closed_forms(), "copies_bytes": FLOAT_BYTES // 2 * num_copied}


class Scaled(Autocast):
    """Autocast with a scaled loss."""

    dtype: Literal["bfloat16", "float16"] = "float16"
    initial_scale: Factor = 65536.0


class Narrow(Settings):
    """Parameters and gradients in bf16."""

    learning_rate: Factor = 0.0001
    keeps_master: bool


timed = partial(Declaration, passes=("timed",))
metered = partial(Declaration, passes=("metered",))
RUNS = {
    "fp32": Declaration("plain", 1, Settings()),
    "bf16": Declaration("autocast", 1, Autocast()),
    "fp16": Declaration("scaled", 1, Scaled()),
    "fp16_unscaled": timed("autocast", 1, Autocast(dtype="float16", num_steps=4)),
    "fp16_overflow": timed("scaled", 1, Scaled(initial_scale=2.0**26, num_steps=8)),
    "fp32_few_samples": metered("plain", 1, Settings(batch_size=8)),
    "bf16_few_samples": metered("autocast", 1, Autocast(batch_size=8)),
    "master": Declaration("narrow", 1, Narrow(keeps_master=True)),
    "pure": Declaration("narrow", 1, Narrow(keeps_master=False)),
}
ON_CUDA = {
    "*": {"width": 4096, "batch_size": 8192},
    "fp32_few_samples": {"batch_size": 32},
    "bf16_few_samples": {"batch_size": 32},
}
