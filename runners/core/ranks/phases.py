"""The phases of a rank, by which meters, failures and observers say where it is.

A strategy marks the phases that torch cannot tell:

    with rank.phase("gather"):
        …

The rest needs no mark. `rank.watch(module, optimizer)` lets hooks tell apart: *forward*, from when
the module is called until its loss is differentiated; *backward*, while `Tensor.backward` runs; and
*optimizer*, from the optimizer's step until its gradients are cleared. Where a strategy marks a
phase itself, these stay within that phase.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

BASE = "build"  # the phase outside all others
STEP_PHASES = FORWARD, BACKWARD, UPDATE = "forward", "backward", "optimizer"


class Marked(Protocol):
    """A rank whose phases begin and end."""

    phase_name: str

    def begin(self, phase: Phase) -> None:
        """Begin a phase."""

    def end(self, phase: Phase) -> None:
        """End a phase that did not fail."""


class Phase:
    """One phase of a rank. A class, because a step of a small model has no time for a generator."""

    __slots__ = ("_rank", "computes", "name", "outer", "start_ns")

    def __init__(self, rank: Marked, name: str, computes: bool) -> None:
        self._rank, self.name, self.computes = rank, name, computes
        self.outer, self.start_ns = "", 0  # the phase around it, while it is open

    def __enter__(self) -> None:
        rank = self._rank
        self.outer = rank.phase_name
        rank.phase_name = self.name
        rank.begin(self)

    def __exit__(self, kind: type[BaseException] | None, *where: object) -> None:
        if kind is not None:
            return  # after a failure the phase it happened in must stand
        rank = self._rank
        rank.end(self)
        rank.phase_name = self.outer


class StepPhases:
    """Tells forward, backward and update apart by hooks on a module, autograd and an optimizer."""

    current: ClassVar[StepPhases | None] = (
        None  # of this process: `Tensor.backward` begins its phase
    )

    def __init__(self, rank: Marked) -> None:
        self._rank = rank
        self._phases = {name: Phase(rank, name, computes=True) for name in STEP_PHASES}
        self.open = ""  # the phase that a hook has begun
        self._handles: list[Any] = []

    def attach(self, module: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        """Hook phases to forward and optimizer step; patch its `zero_grad`, and `Tensor.backward`.

        Hooks of an earlier call are removed.
        """
        self.detach()
        self._handles = [module.register_forward_pre_hook(self._on_forward, prepend=True)]
        if optimizer is not None:
            self._handles.append(optimizer.register_step_pre_hook(lambda *_: self.begin(UPDATE)))
            # It has no hook. An attribute of the instance covers the method, after `detach` too.
            optimizer.zero_grad = self._then_close(optimizer.zero_grad)  # type: ignore[method-assign]
        if StepPhases.current is None:
            _patch_backward()
        StepPhases.current = self

    def detach(self) -> None:
        """Remove the hooks of `attach`."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def close(self) -> None:
        """End the phase that a hook has begun, if one is open."""
        if self.open and self._rank.phase_name == self.open:
            self._phases[self.open].__exit__(None)
        self.open = ""

    def begin(self, name: str) -> None:
        """Begin a phase, and end the one that a hook began before; not within a marked phase."""
        now = self._rank.phase_name
        if now == name or (now != BASE and now != self.open):
            return  # several forward passes before one backward; or within a marked phase
        self.close()
        self._phases[name].__enter__()
        self.open = name

    def _on_forward(self, *call: object) -> None:
        is_computed_again = self.open == BACKWARD  # under activation checkpointing
        if not is_computed_again and torch.is_grad_enabled():
            self.begin(FORWARD)

    def _then_close(self, cleared: Callable[..., None]) -> Callable[..., None]:
        @wraps(cleared)
        def zero_grad(*arguments: Any, **named: Any) -> None:
            cleared(*arguments, **named)
            if self.open == UPDATE:
                self.close()

        return zero_grad


def _patch_backward() -> None:
    """Patch `Tensor.backward` to begin and end the backward phase of this process."""
    differentiated: Callable[..., None] = Tensor.backward

    @wraps(differentiated)
    def backward(tensor: Tensor, *arguments: Any, **named: Any) -> None:
        phases = StepPhases.current
        if phases is not None:
            phases.begin(BACKWARD)
        differentiated(tensor, *arguments, **named)
        if phases is not None and phases.open == BACKWARD:
            phases.close()  # after a failure the phase stands

    Tensor.backward = backward  # type: ignore[method-assign,assignment]
