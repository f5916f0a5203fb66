"""What the runs of `hybrid` will need. No torch."""

from __future__ import annotations

from runners.experiments.hybrid import FLOAT_BYTES, SIDE, Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, transformer_values

CHOICES = (
    Choice(
        "smallest",
        "Under which hybrid does the fullest rank need the least memory?",
        ("ddp_pipeline", "fsdp_tensor", "hsdp"),
        by="peak_bytes",
    ),
    Choice(
        "fastest",
        "Which hybrid takes the shortest step, where ranks share cores?",
        ("single", "ddp_pipeline", "fsdp_tensor", "hsdp"),
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """A step of the fullest rank, by closed forms."""
    settings, busy = plan.settings, plan.world_size
    shape, samples = settings.shape, settings.num_samples_per_rank
    tokens = samples * shape.context
    split = {"ddp_pipeline": SIDE, "fsdp_tensor": SIDE}.get(plan.strategy, 1)
    parts = settings.num_microbatches if plan.strategy == "ddp_pipeline" else 1
    layers = shape.num_layers // (SIDE if parts > 1 else 1)
    return Work(
        peak_bytes=_peak(plan, tokens),
        flops=3 * shape.forward_flops(samples, shape.context) / split,
        moved_bytes=4.0 * tokens * layers * (40 * shape.width + 6 * shape.hidden),
        smooth_values=transformer_values(
            tokens=tokens,
            layers=layers,
            width=shape.width,
            hidden=shape.hidden // split,
            num_heads=max(1, shape.num_heads // split),
            length=shape.context,
            vocabulary=shape.vocabulary,
        ),
        num_operations=_operations(plan, shape.num_layers, parts),
        matrix_rows=tokens // parts,
        num_products=3 * 6 * layers * parts,
        optimizer_parameters=_held(plan) // FLOAT_BYTES,
        optimizer="adam" if plan.strategy == "fsdp_tensor" else "fused_adam",
        communication=_communication(plan),
        num_busy_ranks=busy,
        num_sequential=(parts + SIDE - 1) / parts if parts > 1 else 1.0,
    )


def _operations(plan: RunPlan[Settings], num_layers: int, parts: int) -> int:
    """Operations of a step, and what Python does around them in as many operations of its time.

    FSDP's hooks about each of its units, DTensor about every operation on one, a pipeline's
    schedule about each microbatch: none of them is an operation, and each takes longer than one.
    """
    plain = {"single": 140, "ddp_pipeline": 310, "fsdp_tensor": 425, "hsdp": 245, "fsdp": 245}
    count = plain[plan.strategy] * num_layers
    if plan.strategy == "fsdp_tensor":
        count *= 5
    if plan.strategy in ("hsdp", "fsdp", "fsdp_tensor"):
        count += 700 * (num_layers + 1)
    return count + (250 * parts if parts > 1 else 0)


def _held(plan: RunPlan[Settings]) -> int:
    """Bytes of the parameters that a rank keeps between steps."""
    settings = plan.settings
    tensor = settings.num_layers * settings.tensor_block_bytes + settings.ends_bytes
    return {
        "single": settings.model_bytes,
        "ddp_pipeline": settings.first_stage_bytes,
        "fsdp_tensor": tensor // SIDE,
        "hsdp": settings.model_bytes // SIDE,
        "fsdp": settings.model_bytes // SIDE**2,
    }[plan.strategy]


def _peak(plan: RunPlan[Settings], tokens: int) -> int:
    """Parameters and Adam's moments, what wrappers gather, what a forward keeps, and its samples.

    A block keeps for each token its norms' outputs and statistics, what goes into attention and
    comes out of it, both ends of the GELU, and two sums; the head its norm and the logarithms.
    """
    settings, shape, held = plan.settings, plan.settings.shape, 3 * _held(plan)
    split = SIDE if plan.strategy == "fsdp_tensor" else 1
    inside = (4 * shape.width + 2 * shape.hidden + shape.num_heads) // split
    block, state = 4 * shape.width + 4 + inside, settings.activation_bytes
    samples = 2 * 8 * tokens
    if plan.strategy == "ddp_pipeline":
        parts = settings.num_microbatches
        token = SIDE * (shape.width + shape.num_layers // SIDE * block) + 2 * shape.hidden
        kept = FLOAT_BYTES * tokens // parts * (token + shape.width)
        gradients_and_buckets = 2 * held // 3
        return held + gradients_and_buckets + kept + state + samples
    token = shape.width * 2 + shape.num_layers * block + 2 + shape.vocabulary
    kept = FLOAT_BYTES * tokens * token
    if plan.strategy == "fsdp_tensor":  # fullest when the last block's sums come together
        gathered = settings.ends_bytes + 2 * settings.tensor_block_bytes
        return held + gathered + kept + state + samples
    # Fullest early in backward: the scores' gradient stands twice, and the first layers' beside it.
    first = shape.width * (shape.vocabulary + shape.hidden + 3)
    kept += FLOAT_BYTES * (2 * tokens * shape.vocabulary + first)
    if plan.strategy != "single":
        held += settings.ends_bytes + 2 * settings.block_bytes
    return held + kept + samples


def _communication(plan: RunPlan[Settings]) -> tuple[Communication, ...]:
    settings, state = plan.settings, plan.settings.activation_bytes
    layers, ends = settings.num_layers, settings.ends_bytes
    if plan.strategy == "ddp_pipeline":
        return (
            Communication("all_reduce", settings.first_stage_bytes),
            Communication("send", 2 * state, 2 * settings.num_microbatches),
        )
    if plan.strategy == "single":
        return ()
    is_split = plan.strategy == "fsdp_tensor"
    own = settings.tensor_block_bytes if is_split else settings.block_bytes
    ranks = SIDE**2 if plan.strategy == "fsdp" else SIDE
    sharded = (
        Communication("all_gather", 2 * layers * own + ends, 2 * layers + 1, ranks),
        Communication("reduce_scatter", layers * own + ends, layers + 1, ranks),
    )
    if plan.strategy == "hsdp":
        return (*sharded, Communication("all_reduce", (layers * own + ends) // SIDE, layers + 1))
    if plan.strategy == "fsdp_tensor":
        return (*sharded, Communication("all_reduce", 4 * layers * state, 4 * layers))
    return sharded
