"""What `at_scale` runs: transformers by name, ranks by what they divide, and their closed forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from runners.experiments._split_block import block_parameters_on_a_rank
from runners.plans.experiment import RunPlan, whole_number
from runners.traces.records import Setting
from runners.training.transformer import TransformerShape

BYTES_PER_VALUE = 4
COPIES_PER_PARAMETER = 4  # Adam keeps each parameter, its gradient and two moments
MODELS: dict[str, dict[str, Setting]] = {
    "small": {
        "vocabulary": 1024, "width": 256, "num_heads": 8, "hidden": 1024, "num_layers": 6,
        "length": 64,
    },
    # Billions of parameters, with the widths and depths of models that are called so.
    "seven": {
        "vocabulary": 32768, "width": 4096, "num_heads": 32, "hidden": 16384, "num_layers": 32,
        "length": 2048,
    },
    "seventy": {
        "vocabulary": 32768, "width": 8192, "num_heads": 64, "hidden": 36864, "num_layers": 80,
        "length": 2048,
    },
}  # fmt: skip


def shape_of(settings: Mapping[str, Setting]) -> TransformerShape:
    """The transformer that a run's settings describe.

    Raises:
        ValueError: one of them is no whole number above zero.
    """
    return TransformerShape(
        vocabulary=whole_number(settings, "vocabulary"),
        context=whole_number(settings, "length"),
        width=whole_number(settings, "width"),
        num_heads=whole_number(settings, "num_heads"),
        num_layers=whole_number(settings, "num_layers"),
        hidden=whole_number(settings, "hidden"),
    )


def _divided(plan: RunPlan, shape: TransformerShape) -> tuple[int, int]:
    """How many shards there are, and parts of a layer.

    Raises:
        ValueError: the ranks cannot be dealt out so, or what they divide cannot.
    """
    settings = plan.settings
    num_ranks, replicas = (
        whole_number(settings, "num_ranks"),
        whole_number(settings, "num_replicas"),
    )
    parts = whole_number(settings, "num_tensor_ranks")
    if plan.strategy == "real" and num_ranks != plan.world_size:
        raise ValueError(f"num_ranks {num_ranks} must be the world_size {plan.world_size}")
    if num_ranks % (replicas * parts):
        raise ValueError(f"{num_ranks} ranks cannot be {replicas} replicas of {parts} tensor ranks")
    shards = num_ranks // (replicas * parts)
    if num_ranks < 2:
        raise ValueError("num_ranks must be two or more")
    if shape.width % shape.num_heads or shape.num_heads % parts:
        raise ValueError(f"{shape.num_heads} heads over {parts} ranks do not fit the width")
    for name in ("vocabulary", "context", "width", "hidden"):
        if getattr(shape, name) % (shards * parts):
            raise ValueError(f"{name} {getattr(shape, name)} cannot be dealt out to the ranks")
    return shards, parts


def parameters_on_a_rank(shape: TransformerShape, shards: int, parts: int) -> int:
    """Parameters that one rank keeps between steps: the closed form."""
    blocks = shape.num_layers * block_parameters_on_a_rank(shape, parts)
    return (_root_parameters(shape, parts) + blocks) // shards


def _root_parameters(shape: TransformerShape, parts: int) -> int:
    """Parameters outside the blocks: two tables of the vocabulary, positions and the last norm."""
    tables = 2 * shape.vocabulary * shape.width // parts
    return tables + shape.context * shape.width + 2 * shape.width


def activations_of_a_block(shape: TransformerShape, parts: int) -> int:
    """Values that a block keeps for backward, for each token.

    Whole on every rank: what comes in and what lies between its halves, each also behind its norm,
    and two statistics of each norm. Split: three projections and what attention makes of them, its
    own statistic a head, and the perceptron's hidden features before and behind the bend.
    """
    split = 4 * shape.width + 2 * shape.hidden + shape.num_heads
    return 4 * shape.width + 4 + split // parts


@dataclass(frozen=True)
class Sizes:
    """Bytes on one rank that its peak is added up from.

    Attributes:
        own: its parameters, between steps.
        block: one block's parameters gathered, as far as no layer is split.
        root: the same of what lies outside the blocks.
        kept: what one block keeps for backward.
        activation: one activation that no split makes smaller.
        logits: scores of every token.
        table: one table of the vocabulary, whole.
    """

    own: int
    block: int
    root: int
    kept: int
    activation: int
    logits: int
    table: int

    @classmethod
    def of(cls, shape: TransformerShape, num_tokens: int, shards: int, parts: int) -> Sizes:
        """From the shape of the model and how its ranks divide it."""
        values = (
            parameters_on_a_rank(shape, shards, parts),
            block_parameters_on_a_rank(shape, parts),
            _root_parameters(shape, parts),
            num_tokens * activations_of_a_block(shape, parts),
            num_tokens * shape.width,
            num_tokens * shape.vocabulary,
            shape.vocabulary * shape.width,
        )
        return cls(*(BYTES_PER_VALUE * value for value in values))


def _in_forward(sizes: Sizes, num_layers: int, *, is_sharded: bool) -> int:
    """As the loss is taken: all activations, logits three times over, the last block and the root.

    Logits stand there as one rank's part gathered, as scores, and as their logarithms.
    """
    gathered = sizes.block + sizes.root if is_sharded else 0
    kept = num_layers * sizes.kept + 3 * (sizes.logits + sizes.activation)
    return 3 * sizes.own + gathered + kept


def _in_backward(sizes: Sizes, num_layers: int, shards: int, parts: int) -> int:
    """Under FSDP: four blocks are whole, one gathered, one ahead, a gradient, and one to scatter.

    The root stays gathered with its head's gradient. How many blocks have their gradients scattered
    by then follows from what weighs more: a block's share of these, or what it kept for backward.
    """
    share = sizes.block // shards
    done = num_layers - 2 if share > sizes.kept else 1
    whole = 4 * sizes.block + sizes.root + sizes.table // parts
    kept = (num_layers - 1 - done) * sizes.kept + 6 * sizes.activation
    return 3 * sizes.own + done * share + whole + kept


def peak_of(
    shape: TransformerShape, num_tokens: int, shards: int, parts: int, *, is_sharded: bool
) -> int:
    """Bytes that a rank holds at its peak: the highest of forward, backward and update."""
    sizes = Sizes.of(shape, num_tokens, shards, parts)
    forward = _in_forward(sizes, shape.num_layers, is_sharded=is_sharded)
    if is_sharded:
        return max(forward, _in_backward(sizes, shape.num_layers, shards, parts))
    # The update takes its part of the one gradient that DTensor left whole.
    return max(forward, COPIES_PER_PARAMETER * sizes.own + sizes.table)


def settle(plan: RunPlan) -> RunPlan:
    """The same run with what one rank holds worked out anew.

    Raises:
        ValueError: the model or the ranks cannot be divided so.
    """
    settings = dict(plan.settings)
    shape = shape_of(settings)
    shards, parts = _divided(plan, shape)
    num_tokens = whole_number(settings, "num_rows") * shape.context
    own = parameters_on_a_rank(shape, shards, parts)
    table = BYTES_PER_VALUE * shape.vocabulary * shape.width
    copies = COPIES_PER_PARAMETER * BYTES_PER_VALUE * own
    is_sharded = shards * whole_number(settings, "num_replicas") > 1
    settings |= {
        "num_shards": shards,
        "num_parameters": shape.num_parameters(),
        "num_parameters_per_rank": own,
        "model_bytes": BYTES_PER_VALUE * shape.num_parameters(),
        # Nothing shards the gradient of a table that is split by its rows: DTensor leaves it whole.
        "held_bytes": copies if is_sharded else copies + table - table // parts,
        "peak_bytes": peak_of(shape, num_tokens, shards, parts, is_sharded=is_sharded),
    }
    return replace(plan, settings=settings)


# How a run uses its ranks: replicas of the model, and parts of a layer; what is left are shards.
SMALL = {"fsdp": (1, 1), "tensor": (1, 4), "fsdp_tensor": (1, 2), "hsdp": (2, 1)}
# (ranks, replicas, parts of a layer) of each run of a large model at its full depth.
LARGE = {
    "seven": {
        "fsdp_8": (8, 1, 1),
        "fsdp_1024": (1024, 1, 1),
        "tensor_8": (8, 1, 8),
        "fsdp_tensor_64": (64, 1, 8),
        "hsdp_64": (64, 8, 1),
    },
    "seventy": {
        "tensor_8": (8, 1, 8),
        "fsdp_1024": (1024, 1, 1),
        "fsdp_tensor_1024": (1024, 1, 8),
        "hsdp_1024": (1024, 16, 1),
    },
}
SHALLOW = (4, 6)  # layers of a large model that are soon worked out; a layer is like the next


def _plan(
    model: str,
    num_ranks: int,
    replicas: int,
    parts: int,
    *,
    is_real: bool = False,
    full: bool = False,
    **changed: Setting,
) -> RunPlan:
    return settle(
        RunPlan(
            "real" if is_real else "fake",
            num_ranks if is_real else 1,
            {
                **MODELS[model],
                **changed,
                "num_rows": 1,
                "num_ranks": num_ranks,
                "num_replicas": replicas,
                "num_tensor_ranks": parts,
            },
            passes=("metered",),
            has_timeline=False,
            can_share_device=False,
            only_on_cpu=True,
            nature="real" if is_real else "simulated",
            full=full,
        )
    )


def _plans() -> dict[str, RunPlan]:
    plans: dict[str, RunPlan] = {}
    for way, (replicas, parts) in SMALL.items():
        full = way != "fsdp_tensor"
        plans[f"real_{way}"] = _plan("small", 4, replicas, parts, is_real=True, full=full)
        plans[f"fake_{way}"] = _plan("small", 4, replicas, parts, full=full)
    for num_layers in SHALLOW:
        plans[f"seventy_layers_{num_layers}"] = _plan(
            "seventy", *LARGE["seventy"]["fsdp_tensor_1024"], num_layers=num_layers, full=True
        )
    for model, ways in LARGE.items():
        for way, ranks in ways.items():
            plans[f"{model}_{way}"] = _plan(model, *ranks, full=True)
    return plans


RUNS = _plans()
