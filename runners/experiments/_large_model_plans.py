"""What `large_model` runs: two models, their bytes in closed form, one budget rule, every run.

In: nothing. Out: `RUNS`, in which every strategy stands once without a limit and once under the
budget of its model and optimizer, with the outcome that the closed form of its bytes foretells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runners.plans.experiment import RunPlan, whole_number
from runners.traces.records import Setting, Status
from runners.training.networks import num_parameters

WIDTHS: dict[str, tuple[int, ...]] = {
    "wide": (10000, 5000, 1000, 10),
    "deep": (2000,) * 15,
}
FIRST_STAGE_LAYERS = {"wide": 1, "deep": 7}  # how many layers rank 0 holds under `stages`
NUM_CLASSES = 10
NUM_STAGES = 2
BYTES_PER_VALUE = 4
# What training keeps of each parameter: itself and its gradient; Adam adds two moments.
COPIES = {"sgd": 2, "adam": 4}
# A budget refuses in the first step or not at all; only one model is trained for its losses.
NUM_EPOCHS = {("wide", "sgd"): 3}
NUM_ROWS = {"wide": 50, "deep": 20}
# With Adam, these say of the wide model what others already say of the deep one.
FULL = ("wide_adam_fsdp", "wide_adam_tensor_parallel", "wide_adam_stages_budget")


def model_bytes(widths: Sequence[int]) -> int:
    """Bytes of all parameters: the closed form."""
    return BYTES_PER_VALUE * sum(num_parameters(widths))


def largest_stage_bytes(widths: Sequence[int], cut: int) -> int:
    """Bytes of the parameters of the larger of the two stages; rank 0 holds `cut` layers."""
    counts = num_parameters(widths)
    return BYTES_PER_VALUE * max(sum(counts[:cut]), sum(counts[cut:]))


def budget_bytes(model: str, optimizer: str) -> int:
    """Halfway between what the larger stage keeps and what the whole model keeps.

    One rule for both models and both optimizers; no run is measured to find it.
    """
    widths = WIDTHS[model]
    stage = largest_stage_bytes(widths, FIRST_STAGE_LAYERS[model])
    return COPIES[optimizer] * (stage + model_bytes(widths)) // 2


def settle(plan: RunPlan) -> RunPlan:
    """The same run with the bytes of its model and of its parts worked out anew.

    Raises:
        ValueError: the widths make no network, or none that this strategy can split.
    """
    settings = dict(plan.settings)
    widths, cut = _checked_widths(plan), whole_number(settings, "num_first_stage_layers")
    optimizer = settings["optimizer"]
    if optimizer not in COPIES:
        raise ValueError(f"optimizer must be {' or '.join(COPIES)}, not {optimizer!r}")
    num_rows, batch_size = whole_number(settings, "num_rows"), whole_number(settings, "batch_size")
    if num_rows < batch_size:
        raise ValueError(f"num_rows {num_rows} are fewer than the {batch_size} of one batch")
    if cut >= len(widths) - 1:
        raise ValueError(f"num_first_stage_layers {cut} leaves the second stage no layer")
    settings |= {
        "model": next((m for m, known in WIDTHS.items() if list(known) == widths), "own"),
        "num_classes": NUM_CLASSES,
        "num_data_ranks": max(2, plan.world_size),  # also on one rank, so that rows stay the same
        "copies_per_parameter": COPIES[str(optimizer)],
        "bytes_per_value": BYTES_PER_VALUE,
        "model_bytes": model_bytes(widths),
        "largest_stage_bytes": largest_stage_bytes(widths, cut),
        "largest_layer_bytes": BYTES_PER_VALUE * max(num_parameters(widths)),
    }
    return replace(plan, settings=settings)


def _checked_widths(plan: RunPlan) -> list[int]:
    widths = plan.settings["widths"]
    assert isinstance(widths, list)
    numbers = [width for width in widths if isinstance(width, int) and width > 0]
    if len(numbers) < max(3, len(widths)):
        raise ValueError(f"widths must be three or more whole numbers above zero, not {widths}")
    if numbers[-1] < NUM_CLASSES:
        raise ValueError(f"the last of widths must be at least the {NUM_CLASSES} classes")
    if plan.strategy == "stages" and plan.world_size != NUM_STAGES:
        raise ValueError(f"the layers are cut into {NUM_STAGES} stages, so world_size stays so")
    if plan.strategy == "tensor_parallel" and numbers[1] % plan.world_size:
        raise ValueError(f"a width of {numbers[1]} cannot be split over {plan.world_size} ranks")
    return numbers


def _settings(model: str, optimizer: str) -> dict[str, Setting]:
    return {
        "widths": list(WIDTHS[model]),
        "num_first_stage_layers": FIRST_STAGE_LAYERS[model],
        "optimizer": optimizer,
        "batch_size": 10,
        "num_rows": NUM_ROWS[model],
        "num_validation_rows": 50,
        "teacher_temperature": 0.05,
        "num_epochs": NUM_EPOCHS.get((model, optimizer), 1),
        "learning_rate": 0.01 if optimizer == "sgd" else 0.0001,
    }


FITS: Status = "completed"
FAILS: Status = "out_of_memory"
TOO_CLOSE = None  # the need lies within a hundredth of the budget: no run could show a rule
# model, optimizer → strategy → how it ends under the budget
EXPECTED: dict[tuple[str, str], dict[str, Status | None]] = {
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


def _plan(strategy: str, settings: dict[str, Setting]) -> RunPlan:
    """One free run: a few metered steps, for its true peak."""
    plan = RunPlan(
        strategy,
        1 if strategy == "single" else 2,
        settings,
        passes=("metered",),
        has_timeline=False,
        can_share_device=strategy not in ("fsdp", "tensor_parallel"),
    )
    return settle(plan)


def _plans() -> dict[str, RunPlan]:
    plans: dict[str, RunPlan] = {}
    for (model, optimizer), strategies in EXPECTED.items():
        settings = _settings(model, optimizer)
        prefix = model if optimizer == "sgd" else f"{model}_{optimizer}"
        for strategy, expected in strategies.items():
            free = _plan(strategy, settings)
            plans[f"{prefix}_{strategy}"] = free
            if strategy == "ddp" and optimizer == "sgd":
                plans[f"{prefix}_ddp_view"] = _plan("ddp_view", settings)
            if expected is None:
                continue
            plans[f"{prefix}_{strategy}_budget"] = replace(
                free,
                expected=expected,
                budget_bytes=budget_bytes(model, optimizer),
                passes=("budgeted",),
            )
    return {name: replace(plan, full=name.startswith(FULL)) for name, plan in plans.items()}


RUNS = _plans()
# A try of a run to the end takes seconds only with one epoch.
TRIED_WITH = {name: {"num_epochs": 1} for name, plan in RUNS.items() if plan.budget_bytes}
