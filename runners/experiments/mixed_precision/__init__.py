"""Mixed precision: which tensors get smaller, which do not, and what happens to small gradients.

A stack of layers under Adam: in fp32; under autocast to bf16; under autocast to fp16 with and
without a scaled loss, and with a scale so large that it overflows; with few samples, where copies
of the weights outweigh what activations save; and with parameters that are bf16 themselves, with a
master copy in fp32 and without.

    python -m runners run mixed_precision
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from runners.plans.experiment import PassName, RunPlan
from runners.plans.settings import Count, Factor, RunSettings
from runners.plans.work import mlp_parameters

QUESTION = "How much memory does a lower precision save, and what accuracy does it lose?"
FULL_BYTES, NARROW_BYTES = 4, 2


class Settings(RunSettings):
    """A stack of equal layers, in fp32."""

    width: Count = 128
    num_layers: Count = 8
    batch_size: Count = 256
    num_steps: Count = 9
    learning_rate: Factor = 0.003

    @cached_property
    def activation_bytes(self) -> int:
        """What one layer puts out, in fp32."""
        return FULL_BYTES * self.width * self.batch_size

    @cached_property
    def num_parameters(self) -> int:
        """Weights and biases of all layers."""
        return mlp_parameters((self.width,) * (self.num_layers + 1))


class Autocast(Settings):
    """Layers compute in a narrow dtype; parameters, gradients and moments stay in fp32."""

    dtype: Literal["bfloat16", "float16"] = "bfloat16"

    @cached_property
    def copies_bytes(self) -> int:
        """Narrow copies of the weights that backward needs: all but the first layer's."""
        return NARROW_BYTES * self.width * self.width * (self.num_layers - 1)


class Scaled(Autocast):
    """Autocast with a scaled loss, so that small gradients do not become zero."""

    dtype: Literal["bfloat16", "float16"] = "float16"
    initial_scale: Factor = 65536.0

    def check(self) -> None:
        """Refuse a scale that makes the loss smaller."""
        if self.initial_scale < 1:
            raise ValueError(f"initial_scale must be at least 1, not {self.initial_scale!r}")


class Narrow(Settings):
    """Parameters and gradients in bf16; Adam may keep a master copy of them in fp32."""

    learning_rate: Factor = 0.0001
    keeps_master: bool


def _run(strategy: str, settings: Settings, *passes: PassName) -> RunPlan[Settings]:
    chosen = passes or RunPlan.passes
    return RunPlan(strategy, 1, settings, passes=chosen, has_timeline=False, needs_group=False)


RUNS = {
    "fp32": _run("plain", Settings()),
    "bf16": _run("autocast", Autocast()),
    "fp16": _run("scaled", Scaled()),
    "fp16_unscaled": _run("autocast", Autocast(dtype="float16", num_steps=4), "timed"),
    "fp16_overflow": _run("scaled", Scaled(initial_scale=2.0**26, num_steps=8), "timed"),
    "fp32_few_samples": _run("plain", Settings(batch_size=8), "metered"),
    "bf16_few_samples": _run("autocast", Autocast(batch_size=8), "metered"),
    "master": _run("narrow", Narrow(keeps_master=True)),
    "pure": _run("narrow", Narrow(keeps_master=False)),
}
ON_CUDA = {
    "*": {"width": 4096, "batch_size": 8192},
    "fp32_few_samples": {"batch_size": 32},
    "bf16_few_samples": {"batch_size": 32},
}
