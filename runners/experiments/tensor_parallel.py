"""A transformer's block split by columns and by rows, over 1, 2 and 4 ranks.

The projections that come first are split by columns, those that follow by rows, so that a block
needs one sum over the ranks after attention and one after its perceptron, and as many backward.
How many DTensor really makes is counted twice: by the memory meter and by PyTorch's own
`CommDebugMode`. Outputs and gradients are held against the block that nobody split.

    python -m runners run tensor_parallel
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode

from runners.experiments._split_block import (
    block_parameters_on_a_rank,
    groups_of_a_kind,
    split_block,
    whole_block_parameters,
)
from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, transformer_values
from runners.ranks.rank import Rank
from runners.traces.records import Layer, Model, Setting
from runners.training.transformer import Block, TransformerShape

QUESTION = "What does splitting a transformer's block over ranks save, and what must they exchange?"

BYTES_PER_VALUE = 4
COPIES_PER_PARAMETER = 4  # Adam keeps each parameter, its gradient and two moments
SUMS = 2  # a block needs one after attention and one after its perceptron, in each direction
# In backward through the last of attention's first projections these are whole on every rank: the
# input, its norm's output, the block's output, the gradient that passes attention by, that of the
# norm's output so far, and what is added to it. The gradient of that projection's output is split.
WHOLE_ACTIVATIONS = 6
SETTINGS: dict[str, Setting] = {
    "width": 512,
    "num_heads": 8,
    "hidden": 2048,
    "num_rows": 2,
    "length": 64,
    "num_steps": 13,
    "learning_rate": 0.001,
}
ON_CUDA = {"*": {"width": 8192, "num_heads": 64, "hidden": 32768, "num_rows": 4, "length": 2048}}


def _shape(settings: dict[str, Setting]) -> TransformerShape:
    width, hidden = whole_number(settings, "width"), whole_number(settings, "hidden")
    heads = whole_number(settings, "num_heads")
    return TransformerShape(1, 1, width, heads, 1, hidden)


def settle(plan: RunPlan) -> RunPlan:
    """The same run with what each rank holds and passes worked out anew.

    Raises:
        ValueError: heads or features cannot be dealt out to the ranks equally.
    """
    settings = dict(plan.settings)
    shape = _shape(settings)
    rows, length = whole_number(settings, "num_rows"), whole_number(settings, "length")
    whole_number(settings, "num_steps")
    if shape.width % shape.num_heads:
        raise ValueError(f"width {shape.width} is not divisible by {shape.num_heads} heads")
    for name, count in (("num_heads", shape.num_heads), ("hidden", shape.hidden)):
        if count % plan.world_size:
            raise ValueError(f"{name} {count} cannot be split over {plan.world_size} ranks")
    whole = whole_block_parameters(shape)
    held = block_parameters_on_a_rank(shape, plan.world_size)
    # Where each projection takes the input for itself, its gradient is summed for each of the four.
    backward = SUMS if plan.strategy == "split" else 1 + 3
    settings |= {
        "num_parameters": shape.block_parameters(),
        "whole_bytes": BYTES_PER_VALUE * whole,
        "split_bytes": BYTES_PER_VALUE * (shape.block_parameters() - whole),
        "num_parameters_per_rank": held,
        "bytes_per_value": BYTES_PER_VALUE,
        "copies_per_parameter": COPIES_PER_PARAMETER,
        "held_bytes": BYTES_PER_VALUE * COPIES_PER_PARAMETER * held,
        "num_whole_activations": WHOLE_ACTIVATIONS,
        "num_forward_sums": SUMS,
        "num_backward_sums": backward,
        "activation_bytes": BYTES_PER_VALUE * rows * length * shape.width,
    }
    return replace(plan, settings=settings)


def _plan(strategy: str, world_size: int) -> RunPlan:
    return settle(
        RunPlan(strategy, world_size, dict(SETTINGS), has_timeline=False, can_share_device=False)
    )


RUNS = {
    "ranks_1": _plan("whole", 1),
    "ranks_2": _plan("split", 2),
    "ranks_4": _plan("split", 4),
    "each_input_2": _plan("split_each", 2),
}


def _describe(rank: Rank, block: Block) -> None:
    """Each projection and norm, and whether ranks hold parts of it."""
    layers = [
        Layer(
            name=name,
            kind=type(module).__name__,
            weight_shape=list(module.weight.shape),
            num_parameters=sum(p.numel() for p in module.parameters()),
            bytes=sum(p.nbytes for p in module.parameters()),
            ranks=list(range(rank.world_size)),
            is_sharded=rank.world_size > 1 and not name.endswith("norm"),
        )
        for name, module in block.named_modules()
        if not list(module.children())
    ]
    rank.describe(
        Model(
            num_parameters=sum(layer.num_parameters for layer in layers),
            bytes=sum(layer.bytes for layer in layers),
            dtype="float32",
            layers=layers,
        )
    )


def _block(rank: Rank) -> Block:
    """The whole block, with the same parameters on every rank."""
    torch.manual_seed(rank.seed)
    return Block(_shape(vars(rank.settings)), rank.device)


def _input(rank: Rank) -> Tensor:
    """The same rows on every rank; a block inside a model owes its input a gradient."""
    settings = rank.settings
    source = torch.Generator().manual_seed(rank.seed + 1)
    shape = (settings.num_rows, settings.length, settings.width)
    return torch.randn(shape, generator=source).to(rank.device).requires_grad_()


def _step(rank: Rank, block: Block, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Forward and backward through the block; its output and the loss."""
    with rank.phase("forward"):
        out = block(tokens)
        loss = out.square().mean()
    with rank.phase("backward"):
        loss.backward()
    return out, loss


def _train(rank: Rank, block: Block) -> None:
    tokens = _input(rank)
    rank.rows(tokens)
    update = torch.optim.Adam(groups_of_a_kind(block), lr=rank.settings.learning_rate, fused=True)
    rank.watch(block, update)
    for _ in rank.steps(rank.settings.num_steps):
        out, loss = _step(rank, block, tokens)
        del out, loss
        with rank.phase("optimizer"):
            update.step()
            update.zero_grad()
            tokens.grad = None


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def _apart(pairs: Sequence[tuple[Tensor | None, Tensor | None]]) -> float:
    """The largest difference between mine and true, as a share of the largest true value of all.

    Of all, since some gradients are nothing but rounding: a key's bias moves no softmax.
    """
    differences, sizes = [], []
    for mine, true in pairs:
        assert mine is not None
        assert true is not None
        differences.append((_whole(mine) - true).abs().max())
        sizes.append(true.abs().max())
    return float(torch.stack(differences).max() / torch.stack(sizes).max())


def _compare(rank: Rank, block: Block) -> None:
    """Hold the block against one that nobody split, and count what its two passes exchange."""
    true, tokens, own = _block(rank), _input(rank), _input(rank)
    expected = true(tokens)
    expected.square().mean().backward()
    with CommDebugMode() as forward:
        out = block(own)
        loss = out.square().mean()
    with CommDebugMode() as backward:
        loss.backward()
    gradients = [
        (mine.grad, whole.grad)
        for mine, whole in zip(block.parameters(), true.parameters(), strict=True)
    ]
    rank.measure("num_forward_collectives", forward.get_total_counts())
    rank.measure("num_backward_collectives", backward.get_total_counts())
    rank.measure("output_difference", _apart([(out, expected)]))
    rank.measure("input_gradient_difference", _apart([(own.grad, tokens.grad)]))
    rank.measure("gradient_difference", _apart(gradients))
    block.zero_grad()


def _run(rank: Rank, *, shares_input: bool = True) -> None:
    with rank.phase("build"):
        block = _block(rank)
    _describe(rank, block)
    if rank.world_size > 1:
        mesh = init_device_mesh(rank.device.type, (rank.world_size,))
        with rank.phase("wrap"):
            split_block(block, mesh, shares_input=shares_input)
    if not rank.is_metered:
        _compare(rank, block)
    _train(rank, block)


def whole(rank: Rank) -> None:
    """The block as it is, on one device."""
    _run(rank)


def split(rank: Rank) -> None:
    """Columns, then rows; the input of attention is declared once for its three projections."""
    _run(rank)


def split_each(rank: Rank) -> None:
    """The same split, but each projection declares its input for itself, as tutorials have it."""
    _run(rank, shares_input=False)


STRATEGIES = {"whole": whole, "split": split, "split_each": split_each}


def forecast(plan: RunPlan) -> Work | None:
    """The closed forms of one step of any rank."""
    settings = {name: one for name, one in plan.settings.items() if isinstance(one, int)}
    shape = _shape(dict(plan.settings))
    n, held = plan.world_size, settings["num_parameters_per_rank"]
    num_sums = settings["num_forward_sums"] + settings["num_backward_sums"]
    tokens = settings["num_rows"] * settings["length"]
    passed = Exchange("all_reduce", num_sums * settings["activation_bytes"], num_sums, n)
    flops = 3.0 * shape.forward_flops(settings["num_rows"], settings["length"]) / n
    return Work(
        peak_bytes=settings["held_bytes"]
        + (settings["num_whole_activations"] * n + 1) * settings["activation_bytes"] // n,
        flops=flops,
        matrix_rows=tokens,
        num_products=3 * 6 * shape.num_layers,
        moved_bytes=30.0 * BYTES_PER_VALUE * tokens * shape.width,
        smooth_values=transformer_values(
            tokens=tokens,
            layers=shape.num_layers,
            width=shape.width,
            hidden=shape.hidden // n,
            num_heads=shape.num_heads // n,
            length=settings["length"],
            vocabulary=shape.vocabulary,
        ),
        num_operations=400 if n > 1 else 120,
        optimizer_parameters=held,
        optimizer="fused_adam",
        exchanges=(passed,) if n > 1 else (),
        num_busy_ranks=n,
    )


CHOICES = (
    Choice(
        "least_memory",
        "Over how many ranks does a rank's peak come out lowest?",
        ("ranks_1", "ranks_2", "ranks_4"),
        by="peak_bytes",
    ),
    Choice(
        "fastest_step", "Over how many ranks is a step fastest?", ("ranks_1", "ranks_2", "ranks_4")
    ),
)
