"""What `hybrid` runs, and the closed forms of what a rank holds and sends on each axis. No torch.

Four ranks stand in a square: every hybrid splits one thing along its rows and another along its
columns. In: nothing. Out: `RUNS`.
"""

from __future__ import annotations

from dataclasses import replace

from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, transformer_values
from runners.traces.records import Setting
from runners.training.transformer import TransformerShape

FLOAT_BYTES = 4
SIDE = 2  # ranks along each axis of the square
# How many parts the rows of a batch are dealt out in.
DATA_PARTS = {"single": 1, "ddp_pipeline": SIDE, "fsdp_tensor": SIDE, "hsdp": 4, "fsdp": 4}
SETTINGS: dict[str, Setting] = {
    "vocabulary": 64,
    "context": 32,
    "width": 64,
    "num_heads": 4,
    "num_layers": 2,
    "hidden": 256,
    "batch_size": 16,
    "num_microbatches": 4,
    "num_steps": 5,
    "learning_rate": 0.003,
}


def shape_of(settings: dict[str, Setting]) -> TransformerShape:
    """The transformer that settings describe."""
    return TransformerShape(
        vocabulary=whole_number(settings, "vocabulary"),
        context=whole_number(settings, "context"),
        width=whole_number(settings, "width"),
        num_heads=whole_number(settings, "num_heads"),
        num_layers=whole_number(settings, "num_layers"),
        hidden=whole_number(settings, "hidden"),
    )


def settle(plan: RunPlan) -> RunPlan:
    """The same run with what each rank holds and sends worked out anew.

    Raises:
        ValueError: the ranks are no square, or rows, heads or layers cannot be dealt out.
    """
    settings = dict(plan.settings)
    shape, rows = shape_of(settings), whole_number(settings, "batch_size")
    parts = whole_number(settings, "num_microbatches")
    if plan.world_size != (1 if plan.strategy == "single" else SIDE * SIDE):
        raise ValueError(f"world_size must stay: the ranks stand in a square of {SIDE} by {SIDE}")
    data_parts = DATA_PARTS[plan.strategy]
    own = rows // data_parts
    if rows % data_parts or (plan.strategy == "ddp_pipeline" and own % parts):
        raise ValueError(f"batch_size {rows} cannot be dealt out to the ranks equally")
    for name in ("width", "num_heads", "num_layers", "hidden"):
        if whole_number(settings, name) % (SIDE * SIDE if name == "width" else SIDE):
            raise ValueError(f"{name} {settings[name]} cannot be split over the ranks")
    if shape.width % shape.num_heads:
        raise ValueError(f"width {shape.width} is not divisible by {shape.num_heads} heads")
    settings |= {
        "num_rows_per_rank": own,
        "model_bytes": FLOAT_BYTES * shape.num_parameters(),
        "block_bytes": FLOAT_BYTES * shape.block_parameters(),
        "ends_bytes": FLOAT_BYTES * _ends(shape),
        "tensor_block_bytes": FLOAT_BYTES * _tensor_block(shape),
        "first_stage_bytes": FLOAT_BYTES * _first_stage(shape),
        "activation_bytes": FLOAT_BYTES * own * shape.context * shape.width,
    }
    return replace(plan, settings=settings)


def _ends(shape: TransformerShape) -> int:
    """Parameters outside the blocks: what FSDP's root gathers once and keeps."""
    return shape.num_parameters() - shape.num_layers * shape.block_parameters()


def _tensor_block(shape: TransformerShape) -> int:
    """Parameters of a block on one rank of the tensor axis.

    Split: four projections, three of their biases, both layers of the perceptron and the bias of
    the first. Whole on every rank: the other two biases and the norms.
    """
    split = 4 * shape.width**2 + 3 * shape.width + 2 * shape.width * shape.hidden + shape.hidden
    return shape.block_parameters() - split + split // SIDE


def _first_stage(shape: TransformerShape) -> int:
    """Parameters of the pipeline's first stage: the embeddings and the first blocks."""
    embeddings = (shape.vocabulary + shape.context) * shape.width
    return embeddings + shape.num_layers // SIDE * shape.block_parameters()


def _plan(strategy: str) -> RunPlan:
    plan = RunPlan(
        strategy,
        1 if strategy == "single" else SIDE * SIDE,
        SETTINGS,
        has_timeline=False,
        can_share_device=False,
    )
    return settle(plan)


RUNS = {strategy: _plan(strategy) for strategy in DATA_PARTS}
RUNS["fsdp"] = replace(RUNS["fsdp"], full=True)
# Larger models, so that what they hold and send weighs; the rows stay few.
ON_CUDA: dict[str, dict[str, Setting]] = {
    "*": {"vocabulary": 4096, "context": 512, "width": 1024, "num_heads": 16, "hidden": 4096}
}

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


def forecast(plan: RunPlan) -> Work | None:
    """A step of the fullest rank, by closed forms."""
    settings = dict(plan.settings)
    shape, rows = shape_of(settings), whole_number(settings, "num_rows_per_rank")
    tokens = rows * shape.context
    split = {"ddp_pipeline": SIDE, "fsdp_tensor": SIDE}.get(plan.strategy, 1)
    parts = whole_number(settings, "num_microbatches") if plan.strategy == "ddp_pipeline" else 1
    busy = plan.world_size
    layers = shape.num_layers // (SIDE if parts > 1 else 1)
    return Work(
        peak_bytes=_foretell_peak(plan, shape, tokens),
        flops=3 * shape.forward_flops(rows, shape.context) / split,
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
        num_operations=_foretell_operations(plan, shape.num_layers, parts),
        matrix_rows=tokens // parts,
        num_products=3 * 6 * layers * parts,
        optimizer_parameters=_foretell_held(plan, shape) // FLOAT_BYTES,
        optimizer="adam" if plan.strategy == "fsdp_tensor" else "fused_adam",
        exchanges=_foretell_exchanges(plan),
        num_busy_ranks=busy,
        num_sequential=(parts + SIDE - 1) / parts if parts > 1 else 1.0,
    )


def _foretell_operations(plan: RunPlan, num_layers: int, parts: int) -> int:
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


def _foretell_held(plan: RunPlan, shape: TransformerShape) -> int:
    """Bytes of the parameters that a rank keeps between steps."""
    tensor = shape.num_layers * _tensor_block(shape) + _ends(shape)
    parameters = {
        "single": shape.num_parameters(),
        "ddp_pipeline": _first_stage(shape),
        "fsdp_tensor": tensor // SIDE,
        "hsdp": shape.num_parameters() // SIDE,
        "fsdp": shape.num_parameters() // SIDE**2,
    }
    return FLOAT_BYTES * parameters[plan.strategy]


def _foretell_peak(plan: RunPlan, shape: TransformerShape, tokens: int) -> int:
    """Parameters and Adam's moments, what wrappers gather, what a forward keeps, and its rows.

    A block keeps for each token its norms' outputs and statistics, what goes into attention and
    comes out of it, both ends of the GELU, and two sums; the head its norm and the logarithms.
    """
    held = 3 * _foretell_held(plan, shape)
    split = SIDE if plan.strategy == "fsdp_tensor" else 1
    inside = (4 * shape.width + 2 * shape.hidden + shape.num_heads) // split
    block, state = 4 * shape.width + 4 + inside, FLOAT_BYTES * tokens * shape.width
    rows = 2 * 8 * tokens
    if plan.strategy == "ddp_pipeline":
        parts = whole_number(plan.settings, "num_microbatches")
        token = SIDE * (shape.width + shape.num_layers // SIDE * block) + 2 * shape.hidden
        kept = FLOAT_BYTES * tokens // parts * (token + shape.width)
        gradients_and_buckets = 2 * held // 3
        return held + gradients_and_buckets + kept + state + rows
    token = shape.width * 2 + shape.num_layers * block + 2 + shape.vocabulary
    kept = FLOAT_BYTES * tokens * token
    if plan.strategy == "fsdp_tensor":  # fullest when the last block's sums come together
        gathered = FLOAT_BYTES * (_ends(shape) + 2 * _tensor_block(shape))
        return held + gathered + kept + state + rows
    # Fullest early in backward: the scores' gradient stands twice, and the first layers' beside it.
    first = shape.width * (shape.vocabulary + shape.hidden + 3)
    kept += FLOAT_BYTES * (2 * tokens * shape.vocabulary + first)
    if plan.strategy != "single":
        held += FLOAT_BYTES * (_ends(shape) + 2 * shape.block_parameters())
    return held + kept + rows


def _foretell_exchanges(plan: RunPlan) -> tuple[Exchange, ...]:
    names = ("num_layers", "block_bytes", "ends_bytes", "tensor_block_bytes", "activation_bytes")
    layers, block, ends, tensor, state = (whole_number(plan.settings, name) for name in names)
    if plan.strategy == "ddp_pipeline":
        parts = whole_number(plan.settings, "num_microbatches")
        stage = whole_number(plan.settings, "first_stage_bytes")
        return (Exchange("all_reduce", stage), Exchange("send", 2 * state, 2 * parts))
    if plan.strategy == "single":
        return ()
    own, ranks = (tensor, SIDE) if plan.strategy == "fsdp_tensor" else (block, SIDE)
    ranks = SIDE**2 if plan.strategy == "fsdp" else ranks
    sharded = (
        Exchange("all_gather", 2 * layers * own + ends, 2 * layers + 1, ranks),
        Exchange("reduce_scatter", layers * own + ends, layers + 1, ranks),
    )
    if plan.strategy == "hsdp":
        return (*sharded, Exchange("all_reduce", (layers * own + ends) // SIDE, layers + 1))
    if plan.strategy == "fsdp_tensor":
        return (*sharded, Exchange("all_reduce", 4 * layers * state, 4 * layers))
    return sharded
