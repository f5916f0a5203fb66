"""Adam over parameters in bf16: with its state and a master copy in fp32, or all of it narrow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class LowAdam(torch.optim.Optimizer):
    """Adam for narrow parameters.

    Args:
        parameters: in bf16, say.
        learning_rate: of every step.
        keeps_master: update a copy in fp32 and round it into the parameters; the means are fp32
            then too. Otherwise all of it is as narrow as the parameters.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], learning_rate: float, keeps_master: bool
    ) -> None:
        super().__init__(parameters, {"lr": learning_rate})
        self.keeps_master = keeps_master
        self.num_steps = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ANN401
        """Update every parameter that has a gradient, one after another."""
        self.num_steps += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group["lr"])

    def _update(self, parameter: nn.Parameter, rate: float) -> None:
        state = self.state[parameter]
        dtype = torch.float32 if self.keeps_master else parameter.dtype
        if not state:
            state["mean"] = torch.zeros_like(parameter, dtype=dtype)
            state["square"] = torch.zeros_like(parameter, dtype=dtype)
            if self.keeps_master:
                state["master"] = parameter.detach().to(dtype, copy=True)
        assert parameter.grad is not None
        gradient: Tensor = parameter.grad.to(dtype)
        state["mean"].lerp_(gradient, 1 - BETAS[0])
        state["square"].mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        corrections = [1 - beta**self.num_steps for beta in BETAS]
        bottom = (state["square"] / corrections[1]).sqrt_().add_(EPSILON)
        target = state.get("master", parameter)
        target.addcdiv_(state["mean"], bottom, value=-rate / corrections[0])
        if self.keeps_master:
            parameter.copy_(target)
