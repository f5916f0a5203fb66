"""The runs of `transformer` as pure values, and the closed forms that its claims rest on."""

from __future__ import annotations

from dataclasses import replace

from runners.plans.experiment import PassName, RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, transformer_values
from runners.traces.records import Setting
from runners.training.text import VOCABULARY
from runners.training.transformer import TransformerShape

FLOAT = 4
PEAK = ("state", "activation", "row")  # whose bytes together are the fullest rank's peak
SETTINGS: dict[str, Setting] = {
    "context": 64,
    "width": 64,
    "num_heads": 4,
    "num_layers": 4,
    "hidden": 256,
    "global_batch_size": 8,
    "num_steps": 32,
    "learning_rate": 0.003,
    "num_held_out_rows": 32,
    "num_sample_bytes": 100,
}
PIPELINED: dict[str, Setting] = {**SETTINGS, "num_microbatches": 4}
LONG: dict[str, Setting] = {
    **SETTINGS,
    "context": 128,
    "width": 128,
    "hidden": 512,
    "num_steps": 800,
    "num_held_out_rows": 128,
    "num_sample_bytes": 800,
    "learning_rate": 0.002,
}


def shape_of(settings: dict[str, Setting]) -> TransformerShape:
    """The transformer that settings ask for."""
    return TransformerShape(
        vocabulary=VOCABULARY,
        context=whole_number(settings, "context"),
        width=whole_number(settings, "width"),
        num_heads=whole_number(settings, "num_heads"),
        num_layers=whole_number(settings, "num_layers"),
        hidden=whole_number(settings, "hidden"),
    )


def settle(plan: RunPlan) -> RunPlan:
    """The same run with its closed forms worked out anew.

    Raises:
        ValueError: the batch, the heads, the layers or the width cannot be dealt out so.
    """
    settings = dict(plan.settings)
    shape = shape_of(settings)
    _check(plan, shape)
    rows = whole_number(settings, "global_batch_size")
    own_rows = rows // plan.world_size if plan.strategy in ("ddp", "fsdp") else rows
    tokens = rows * shape.context
    fullest = max(
        range(plan.world_size),
        key=lambda rank: state_bytes(plan, rank) + activation_bytes(plan, rank),
    )
    weights = shape.num_layers * (4 * shape.width**2 + 2 * shape.width * shape.hidden)
    settings |= {
        "num_tokens_per_step": tokens,
        "num_parameters": shape.num_parameters(),
        "num_embedding_parameters": (VOCABULARY + shape.context) * shape.width,
        "num_rank_parameters": max(held(plan.strategy, shape, plan.world_size)),
        "model_bytes": FLOAT * shape.num_parameters(),
        "hidden_state_bytes": FLOAT * tokens * shape.width,
        "num_weight_flops": 3 * 2 * tokens * weights,
        "num_attention_flops": 3 * 2 * tokens * shape.num_layers * 2 * shape.context * shape.width,
        "num_head_flops": 3 * 2 * tokens * VOCABULARY * shape.width,
        "row_bytes": 8 * own_rows * (shape.context + 1),
        "block_bytes": FLOAT * _block_parameters(shape),
        "state_bytes": state_bytes(plan, fullest),
        "activation_bytes": activation_bytes(plan, fullest),
    }
    return replace(plan, settings=settings)


def _check(plan: RunPlan, shape: TransformerShape) -> None:
    ranks, settings = plan.world_size, dict(plan.settings)
    divided = {
        "num_heads": (shape.width, shape.num_heads),
        "world_size, over which the rows go": (settings["global_batch_size"], ranks),
    }
    if plan.strategy == "tensor_parallel":
        divided = {"world_size, over which the heads go": (shape.num_heads, ranks)}
    if plan.strategy == "fsdp":
        divided["world_size, over which the width goes"] = (shape.width, ranks)
    if plan.strategy == "pipelined":
        parts = whole_number(settings, "num_microbatches")
        divided = {
            "world_size, over which the layers go": (shape.num_layers, ranks),
            "num_microbatches": (settings["global_batch_size"], parts),
        }
    for name, (whole, parts) in divided.items():
        if whole % parts:  # type: ignore[operator]
            raise ValueError(f"{whole} cannot be divided by {parts}: {name}")


def held(strategy: str, shape: TransformerShape, ranks: int) -> list[int]:
    """Parameters that each rank keeps: the closed form."""
    whole = shape.num_parameters()
    if strategy == "fsdp":
        return [whole // ranks] * ranks
    if strategy == "tensor_parallel":
        width, hidden = shape.width, shape.hidden
        split = 4 * width * width + 3 * width + 2 * width * hidden + hidden
        return [whole - shape.num_layers * (split - split // ranks)] * ranks
    if strategy == "pipelined":
        blocks = shape.num_layers // ranks * shape.block_parameters()
        ends = [0] * ranks
        ends[0] += (shape.vocabulary + shape.context) * shape.width
        ends[-1] += 2 * shape.width + shape.width * shape.vocabulary
        return [blocks + end for end in ends]
    return [whole] * ranks


def state_bytes(plan: RunPlan, rank: int) -> int:
    """What a rank keeps between steps, and what its wrapper adds: the closed form.

    Parameters and Adam's two moments; DDP's buckets; what FSDP's root group has gathered.
    """
    shape = shape_of(dict(plan.settings))
    own = FLOAT * held(plan.strategy, shape, plan.world_size)[rank]
    added = {"ddp": own, "fsdp": FLOAT * (shape.num_parameters() - _block_parameters(shape))}
    return 3 * own + added.get(plan.strategy, 0)


def _block_parameters(shape: TransformerShape) -> int:
    return shape.num_layers * shape.block_parameters()


def activation_bytes(plan: RunPlan, rank: int) -> int:
    """What a rank keeps of a forward pass, and the scores' gradients: the closed form.

    A block keeps for each token its two norms' outputs and statistics, query, key, value, what
    attention gives and its log-sum, both ends of the GELU, and the two sums. The head keeps its
    norm's output and the scores' logarithms, beside which the scores' gradient stands twice when
    backward begins.
    """
    settings = dict(plan.settings)
    shape = shape_of(settings)
    ranks, strategy = plan.world_size, plan.strategy
    rows = whole_number(settings, "global_batch_size")
    split = ranks if strategy == "tensor_parallel" else 1
    if strategy in ("ddp", "fsdp"):
        rows //= ranks
    inside = 4 * shape.width + 2 * shape.hidden + shape.num_heads
    block = 4 * shape.width + 4 + inside // split
    is_staged = strategy == "pipelined"
    layers = shape.num_layers // ranks if is_staged else shape.num_layers
    token = shape.width + layers * block
    if not is_staged or rank == ranks - 1:
        token += shape.width + 2 + shape.vocabulary
        parts = whole_number(settings, "num_microbatches") if is_staged else 1
        token += 2 * shape.vocabulary // parts
    return FLOAT * rows * shape.context * token


def _plan(strategy: str, ranks: int, settings: dict[str, Setting], **changed: object) -> RunPlan:
    passes: tuple[PassName, ...] = ("timed", "metered")
    plan = RunPlan(strategy, ranks, settings, passes=passes, keeps_steps=True, has_timeline=False)
    return settle(replace(plan, **changed))  # type: ignore[arg-type]


RUNS = {
    "single": _plan("single", 1, SETTINGS),
    "ddp": _plan("ddp", 2, SETTINGS),
    "fsdp": _plan("fsdp", 2, SETTINGS, can_share_device=False),
    "tensor_parallel": _plan("tensor_parallel", 2, SETTINGS, can_share_device=False),
    "pipelined": _plan("pipelined", 2, PIPELINED, has_timeline=True),
    "long": _plan("ddp", 2, LONG, full=True, passes=("timed",), keeps_steps=False),
}
ON_CUDA: dict[str, dict[str, Setting]] = {
    "*": {
        "context": 512,
        "width": 1024,
        "num_heads": 16,
        "num_layers": 12,
        "hidden": 4096,
        "global_batch_size": 32,
        "learning_rate": 0.0003,
    }
}
TRIED_WITH: dict[str, dict[str, Setting]] = {"long": {"num_steps": 100}}

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


def forecast(plan: RunPlan) -> Work | None:
    """The work of a step on the busiest rank, by closed forms."""
    settings = dict(plan.settings)
    shape, strategy = shape_of(settings), plan.strategy
    ranks = plan.world_size
    share = 1 / ranks if strategy in ("ddp", "fsdp", "pipelined") else 1.0
    blocks = whole_number(settings, "num_weight_flops") + whole_number(
        settings, "num_attention_flops"
    )
    if strategy == "tensor_parallel":
        blocks //= ranks
    parts = whole_number(settings, "num_microbatches") if strategy == "pipelined" else 1
    layers = shape.num_layers // ranks if strategy == "pipelined" else shape.num_layers
    tokens = int(share * whole_number(settings, "num_tokens_per_step"))
    if strategy == "pipelined":
        tokens = whole_number(settings, "num_tokens_per_step") // parts
    features = shape.num_layers * (40 * shape.width + 6 * shape.hidden) + 8 * VOCABULARY
    operations = parts * (37 + 132 * layers)
    if strategy == "tensor_parallel":
        operations += 700  # the optimizer goes through every parameter by itself
    return Work(
        peak_bytes=sum(whole_number(settings, f"{what}_bytes") for what in PEAK),
        flops=share * (blocks + whole_number(settings, "num_head_flops")),
        matrix_rows=tokens,
        num_products=parts * 3 * (6 * layers + 1),
        moved_bytes=share * 4.0 * whole_number(settings, "num_tokens_per_step") * features,
        smooth_values=parts
        / (ranks if strategy == "tensor_parallel" else 1)
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
        optimizer_parameters=whole_number(settings, "num_rank_parameters"),
        optimizer="adam" if strategy == "tensor_parallel" else "fused_adam",
        exchanges=_foretell_exchanges(plan),
        num_busy_ranks=ranks,
        num_sequential=(parts + ranks - 1) / parts if strategy == "pipelined" else 1.0,
    )


def _foretell_exchanges(plan: RunPlan) -> tuple[Exchange, ...]:
    settings = dict(plan.settings)
    ranks, model = plan.world_size, whole_number(settings, "model_bytes")
    states = whole_number(settings, "hidden_state_bytes")
    blocks, layers = (whole_number(settings, name) for name in ("block_bytes", "num_layers"))
    if plan.strategy == "ddp":
        return (Exchange("all_reduce", model, 1, ranks, 0.5),)
    if plan.strategy == "fsdp":
        return (
            Exchange("all_gather", model + blocks, 2 * layers + 1, ranks, 0.3),
            Exchange("reduce_scatter", model, layers + 1, ranks, 0.3),
        )
    if plan.strategy == "tensor_parallel":
        calls = 4 * layers
        return (Exchange("all_reduce", calls * states, calls, ranks),)
    if plan.strategy == "pipelined":
        parts = whole_number(settings, "num_microbatches")
        return (Exchange("send", 2 * states, 2 * parts, ranks),)
    return ()
