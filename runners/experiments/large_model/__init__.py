"""A model that does not fit: which strategies let it train, and which only seem to.

Two models of about the same size, one with a dominant layer (`wide`) and one of equal layers
(`deep`), trained on one device, under DDP, split into two stages by hand, with tensor parallelism
and under FSDP: each once without a limit, for its true peak, and once under a budget per rank.

    python -m runners run large_model
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Literal

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor, RunSettings
from runners.plans.work import layer_parameters
from runners.traces.schema import Status

QUESTION = "Which strategies can train a model that does not fit one device's memory?"
WIDTHS: dict[str, tuple[int, ...]] = {
    "wide": (10000, 5000, 1000, 10),
    "deep": (2000,) * 15,
}
FIRST_STAGE_LAYERS = {"wide": 1, "deep": 7}  # how many layers rank 0 holds under `stages`
NUM_CLASSES = 10
NUM_STAGES = 2
BYTES_PER_VALUE = 4
Optimizer = Literal["sgd", "adam"]
# What training keeps of each parameter: itself and its gradient; Adam adds two moments.
COPIES: dict[Optimizer, int] = {"sgd": 2, "adam": 4}


class Settings(RunSettings):
    """A stack of linear layers, where it is cut into two stages, and how long it trains."""

    widths: tuple[Count, ...]
    num_first_stage_layers: Count
    optimizer: Optimizer
    batch_size: Count = 10
    num_samples: Count
    num_validation_samples: Count = 50
    teacher_temperature: Factor = 0.05
    num_epochs: Count
    learning_rate: Factor

    def check(self) -> None:
        """Refuse widths that make no network, or none that this strategy can split."""
        widths, cut, n = list(self.widths), self.num_first_stage_layers, self.world_size
        if len(widths) < 3:
            raise ValueError(f"widths must be three or more whole numbers above zero, not {widths}")
        if widths[-1] < NUM_CLASSES:
            raise ValueError(f"the last of widths must be at least the {NUM_CLASSES} classes")
        if self.strategy == "stages" and n != NUM_STAGES:
            raise ValueError(f"the layers are cut into {NUM_STAGES} stages, so world_size stays so")
        if self.strategy == "tensor_parallel" and widths[1] % n:
            raise ValueError(f"a width of {widths[1]} cannot be split over {n} ranks")
        if self.num_samples < self.batch_size:
            raise ValueError(
                f"num_samples {self.num_samples} are fewer than the {self.batch_size} of one batch"
            )
        if cut >= len(widths) - 1:
            raise ValueError(f"num_first_stage_layers {cut} leaves the second stage no layer")

    @cached_property
    def model(self) -> str:
        """The name of the model with these widths."""
        return next((name for name, known in WIDTHS.items() if known == self.widths), "own")

    @cached_property
    def num_classes(self) -> int:
        """Of the labels; the last layer may be wider."""
        return NUM_CLASSES

    @cached_property
    def num_data_ranks(self) -> int:
        """Ranks that samples are drawn for; at least two, so that one rank trains on the same."""
        return max(2, self.world_size)

    @cached_property
    def copies_per_parameter(self) -> int:
        """What training keeps of each parameter."""
        return COPIES[self.optimizer]

    @cached_property
    def bytes_per_value(self) -> int:
        """Of fp32."""
        return BYTES_PER_VALUE

    @cached_property
    def model_bytes(self) -> int:
        """All parameters."""
        return BYTES_PER_VALUE * sum(layer_parameters(self.widths))

    @cached_property
    def largest_stage_bytes(self) -> int:
        """Parameters of the larger of the two stages."""
        counts, cut = layer_parameters(self.widths), self.num_first_stage_layers
        return BYTES_PER_VALUE * max(sum(counts[:cut]), sum(counts[cut:]))

    @cached_property
    def largest_layer_bytes(self) -> int:
        """Parameters of the largest layer."""
        return BYTES_PER_VALUE * max(layer_parameters(self.widths))

    def budget_bytes(self) -> int:
        """Halfway between what the larger stage keeps and what the whole model keeps.

        One rule for both models and both optimizers; no run is measured to find it.
        """
        return self.copies_per_parameter * (self.largest_stage_bytes + self.model_bytes) // 2


FITS: Status = "completed"
FAILS: Status = "out_of_memory"
TOO_CLOSE = None  # the need lies within a hundredth of the budget: no run could show a rule
# model, optimizer → strategy → how it ends under the budget
EXPECTED: dict[tuple[str, Optimizer], dict[str, Status | None]] = {
    ("wide", "sgd"): {
        "single": FAILS,
        "ddp": FAILS,
        "stages": FITS,
        "tensor_parallel": FITS,
        "fsdp": FAILS,
    },
    ("deep", "sgd"): {"single": FAILS, "ddp": FAILS, "stages": FITS, "fsdp": FITS},
    ("wide", "adam"): {"single": FAILS, "stages": FITS, "tensor_parallel": FITS, "fsdp": TOO_CLOSE},
    ("deep", "adam"): {"single": FAILS, "ddp": FAILS, "stages": FITS, "fsdp": FITS},
}
# With Adam, these say of the wide model what others already say of the deep one.
FULL_RUNS = ("wide_adam_fsdp", "wide_adam_tensor_parallel", "wide_adam_stages_budget")


def _settings(model: str, optimizer: Optimizer) -> Settings:
    return Settings(
        widths=WIDTHS[model],
        num_first_stage_layers=FIRST_STAGE_LAYERS[model],
        optimizer=optimizer,
        num_samples={"wide": 50, "deep": 20}[model],
        # The allocator refuses in the first step or not at all; one model trains for its losses.
        num_epochs=3 if (model, optimizer) == ("wide", "sgd") else 1,
        learning_rate=0.01 if optimizer == "sgd" else 0.0001,
    )


def _free(strategy: str, settings: Settings) -> RunPlan[Settings]:
    """A few metered steps without a limit, for the true peak."""
    return RunPlan(
        strategy,
        1 if strategy == "single" else 2,
        settings,
        passes=("metered",),
        has_timeline=False,
        can_share_device=strategy not in ("fsdp", "tensor_parallel"),
    )


def _plans() -> dict[str, RunPlan[Settings]]:
    plans: dict[str, RunPlan[Settings]] = {}
    for (model, optimizer), strategies in EXPECTED.items():
        settings = _settings(model, optimizer)
        prefix = model if optimizer == "sgd" else f"{model}_{optimizer}"
        for strategy, expected in strategies.items():
            plans[f"{prefix}_{strategy}"] = free = _free(strategy, settings)
            if strategy == "ddp" and optimizer == "sgd":
                plans[f"{prefix}_ddp_view"] = _free("ddp_view", settings)
            if expected is not None:
                budget = settings.budget_bytes()
                plans[f"{prefix}_{strategy}_budget"] = replace(
                    free, expected=expected, budget_bytes=budget, passes=("budgeted",)
                )
    return {name: replace(plan, full=name.startswith(FULL_RUNS)) for name, plan in plans.items()}


RUNS = _plans()
# A try of a run to the end takes seconds only with one epoch.
TRIED_WITH = {name: {"num_epochs": 1} for name, plan in RUNS.items() if plan.budget_bytes}
