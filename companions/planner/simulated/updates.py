"""The update of a rank's parameters, and what it keeps for it between steps.

In: parameters as a strategy left them (whole, or shards). Out: an `RankOptimizer` that takes their
gradients. Parameters in bf16 have an fp32 copy here, which is updated and written back. Under
ZeRO-1 a rank updates its share of each parameter alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from proofbook.companions.planner.answers.question import Implementation, TrainingSettings
from proofbook.runners.core.meters.memory import local

BLOCK = 256  # values of an 8-bit state that share a scale, as in bitsandbytes
LEAST_QUANTISED = 4096  # values; smaller parameters keep fp32 states, as there


class EightBitAdam(Optimizer):
    """Adam with states of 8 bits: what it keeps, not what it computes."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Allocate missing states, 8-bit, or fp32 if small; add gradients, in place of Adam."""
        every = (parameter for group in self.param_groups for parameter in group["params"])
        for parameter in (parameter for parameter in every if parameter.grad is not None):
            state, num = self.state[parameter], parameter.numel()
            for name in () if state else ("first", "second"):
                is_small = num < LEAST_QUANTISED
                dtype = torch.float32 if is_small else torch.uint8
                state[name] = torch.zeros_like(parameter, dtype=dtype)
                if not is_small:
                    scales = parameter.new_zeros(-(-num // BLOCK), dtype=torch.float32)
                    state[f"{name}_scale"] = scales
            parameter.add_(parameter.grad)  # one kernel in place; values play no role


def _optimizer(
    leaves: list[nn.Parameter], training: TrainingSettings, implementation: Implementation
) -> Optimizer:
    foreach = implementation.is_foreach
    if training.optimizer == "adam8bit":
        return EightBitAdam(leaves)
    if training.optimizer == "adam":
        return torch.optim.AdamW(leaves, 1e-3, foreach=foreach, fused=not foreach)
    # Fused SGD cannot be simulated; one parameter at a time it takes no temporaries either.
    momentum = 0.9 if training.optimizer == "momentum" else 0.0
    return torch.optim.SGD(leaves, 1e-3, momentum=momentum, foreach=foreach)


class RankOptimizer:
    """The optimizer of the parameters, or shares of them, that this rank updates.

    `shards` are the groups among whose ranks ZeRO-1 shards the state of parameters, if any.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        training: TrainingSettings,
        shards: Mapping[nn.Parameter, dist.ProcessGroup] | None = None,
        implementation: Implementation | None = None,
    ) -> None:
        implementation = implementation or Implementation()
        self._parameters = [p for p in parameters if p.requires_grad]
        self._shards = shards or {}
        self.wide: dict[nn.Parameter, Tensor] = {}  # fp32 gradients, where they are asked for
        self.masters: list[nn.Parameter] = []
        pairs = []
        for parameter in self._parameters:
            target = self._own(parameter, local(parameter).detach())
            leaf = nn.Parameter(target)
            if target.dtype is not torch.float32 and training.precision != "bf16":
                leaf = nn.Parameter(target.float())
                self.masters.append(leaf)
            pairs.append((parameter, leaf))
        self._groups = [[pair] for pair in pairs] if self.masters else [pairs] * bool(pairs)
        self._optimizers = [
            _optimizer([leaf for _, leaf in group], training, implementation)
            for group in self._groups
        ]
        if implementation.has_wide_gradients:
            self._widen()

    def _own(self, parameter: nn.Parameter, whole: Tensor) -> Tensor:
        """This rank's share of a parameter or its gradient; under ZeRO-1 a part of it, else all."""
        if (shard := self._shards.get(parameter)) is None:
            return whole
        size = -(-whole.numel() // shard.size())
        start = min(shard.rank() * size, whole.numel())
        return whole.view(-1)[start : start + size]

    def _widen(self) -> None:
        """Register hooks that add each gradient to one in fp32 as soon as it is there."""
        for parameter in self._parameters:
            whole = local(parameter)
            if whole.dtype is torch.float32:
                continue
            self.wide[parameter] = torch.zeros_like(whole, dtype=torch.float32)
            parameter.register_post_accumulate_grad_hook(self._add)

    def _add(self, parameter: Tensor) -> None:
        assert isinstance(parameter, nn.Parameter)
        with torch.no_grad():
            self.wide[parameter].add_(parameter.grad)  # type: ignore[arg-type]
        parameter.grad = None

    def gradients(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Each parameter with its gradient, where it has one: this rank's part of it."""
        for parameter in self._parameters:
            gradient = self.wide.get(parameter, parameter.grad)
            if gradient is not None:
                yield parameter, local(gradient)

    def state(self) -> list[Tensor]:
        """Tensors that are kept between steps beside parameters and gradients."""
        states = (s for optimizer in self._optimizers for s in optimizer.state.values())
        kept = (t for state in states for t in state.values())
        return [*self.masters, *(t for t in kept if isinstance(t, Tensor))]

    @torch.no_grad()
    def step(self) -> None:
        """Reduce-scatter what ZeRO-1 shards, update this rank's shares, all-gather parameters."""
        gradients = dict(self.gradients())
        for parameter, gradient in gradients.items():
            self._communicate(dist.reduce_scatter_single, parameter, gradient, reduces=True)
        self._update(gradients)
        for parameter in self._parameters:
            self._communicate(dist.all_gather_single, parameter, local(parameter), reduces=False)

    def _update(self, gradients: dict[nn.Parameter, Tensor]) -> None:
        """Step the optimizers, with fp32 copies one by one, so that one fp32 gradient is there."""
        for group, optimizer in zip(self._groups, self._optimizers, strict=True):
            for parameter, leaf in group:
                if parameter in gradients:
                    leaf.grad = self._own(parameter, gradients[parameter]).type_as(leaf)
            optimizer.step()
            for parameter, leaf in group:
                leaf.grad = None
                if self.masters:
                    self._own(parameter, local(parameter)).copy_(leaf)

    def _communicate(
        self, collective: Any, parameter: nn.Parameter, whole: Tensor, *, reduces: bool
    ) -> None:
        """Run a collective in place where ranks divide a tensor evenly, else on a padded copy."""
        if (shard := self._shards.get(parameter)) is None:
            return
        flat, own = whole.detach().view(-1), self._own(parameter, whole.detach())
        if own.numel() * shard.size() != flat.numel():
            size = -(-flat.numel() // shard.size())
            flat, own = flat.new_empty(size * shard.size()), flat.new_empty(size)
        collective(*((own, flat) if reduces else (flat, own)), group=shard)

    def zero_grad(self) -> None:
        """Free the gradients, or where they are kept in fp32 set them to zero."""
        for parameter in self._parameters:
            parameter.grad = None
        for gradient in self.wide.values():
            gradient.zero_()
