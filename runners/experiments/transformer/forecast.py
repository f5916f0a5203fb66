"""What the runs of `transformer` will need. No torch."""

from __future__ import annotations

from runners.experiments.transformer import FLOAT, Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, transformer_values
from runners.training.shape import VOCABULARY

CHOICES = (
    Choice(
        "fastest",
        "Which strategy takes the shortest step?",
        ("single", "ddp", "fsdp", "tensor_parallel", "pipelined"),
    ),
    Choice(
        "smallest",
        "Under which strategy does the fullest rank need the least memory?",
        ("single", "ddp", "fsdp", "tensor_parallel", "pipelined"),
        by="peak_bytes",
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """The work of a step on the busiest rank, by closed forms."""
    settings, strategy, ranks = plan.settings, plan.strategy, plan.world_size
    shape, parts = settings.shape, settings.num_parts
    share = 1 / ranks if strategy in ("ddp", "fsdp", "pipelined") else 1.0
    split = ranks if strategy == "tensor_parallel" else 1
    blocks = (settings.num_weight_flops + settings.num_attention_flops) // split
    layers = shape.num_layers // ranks if strategy == "pipelined" else shape.num_layers
    tokens = int(share * settings.num_tokens_per_step)
    if strategy == "pipelined":
        tokens = settings.num_tokens_per_step // parts
    features = shape.num_layers * (40 * shape.width + 6 * shape.hidden) + 8 * VOCABULARY
    operations = parts * (37 + 132 * layers)
    if strategy == "tensor_parallel":
        operations += 700  # the optimizer goes through every parameter by itself
    return Work(
        peak_bytes=settings.state_bytes + settings.activation_bytes + settings.sample_bytes,
        flops=share * (blocks + settings.num_head_flops),
        matrix_rows=tokens,
        num_products=parts * 3 * (6 * layers + 1),
        moved_bytes=share * 4.0 * settings.num_tokens_per_step * features,
        smooth_values=parts
        / split
        * transformer_values(
            tokens=tokens,
            layers=layers,
            width=shape.width,
            hidden=shape.hidden,
            num_heads=shape.num_heads,
            length=shape.context,
            vocabulary=VOCABULARY,
        ),
        block_bytes=FLOAT * tokens * shape.hidden,
        num_operations=operations,
        optimizer_parameters=settings.num_rank_parameters,
        optimizer="adam" if strategy == "tensor_parallel" else "fused_adam",
        communication=_communication(plan),
        num_busy_ranks=ranks,
        num_sequential=(parts + ranks - 1) / parts if strategy == "pipelined" else 1.0,
    )


def _communication(plan: RunPlan[Settings]) -> tuple[Communication, ...]:
    settings, ranks = plan.settings, plan.world_size
    model, states, layers = settings.model_bytes, settings.hidden_state_bytes, settings.num_layers
    if plan.strategy == "ddp":
        return (Communication("all_reduce", model, 1, ranks, 0.5),)
    if plan.strategy == "fsdp":
        return (
            Communication("all_gather", model + settings.block_bytes, 2 * layers + 1, ranks, 0.3),
            Communication("reduce_scatter", model, layers + 1, ranks, 0.3),
        )
    if plan.strategy == "tensor_parallel":
        calls = 4 * layers
        return (Communication("all_reduce", calls * states, calls, ranks),)
    if plan.strategy == "pipelined":
        return (Communication("send", 2 * states, 2 * settings.num_parts, ranks),)
    return ()
