"""A divided MLP trained with all its sums, without one of them, and on divided tokens.

Below the MLP, a layer and a normalization are whole on every rank. Gradients of the first step are
compared with those of one process. Sequence parallelism divides the tokens of what is whole. It
sends as many bytes, or one more gather for each pair of layers where a rank keeps only its own
tokens of what it gathered, and gathers them again in backward.

torchrun --nproc-per-node 2 sums_of_a_block.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import gelu, layer_norm, mse_loss

TOKENS, WIDTH, HIDDEN, STEPS, RATE = 64, 16, 64, 50, 0.3
sent = {"bytes": 0}


def own(tensor, dim=0):
    return tensor.chunk(dist.get_world_size(), dim)[dist.get_rank()].clone()


def reduced(tensor, passes=2):
    """The sum over the ranks. A ring sends, in each pass, all parts of it but one."""
    total = tensor.detach().clone()
    dist.all_reduce(total)
    size = dist.get_world_size()
    sent["bytes"] += passes * total.nbytes * (size - 1) // size
    return total


def reduced_and_scattered(tensor):
    return own(reduced(tensor, passes=1))  # gloo has no reduce-scatter of its own


def gathered(part):
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part.contiguous())
    sent["bytes"] += part.nbytes * (len(parts) - 1)
    return torch.cat(parts)


def identity(tensor):
    return tensor.view_as(tensor)


class Communicate(torch.autograd.Function):
    """One function in forward, and another in backward."""

    @staticmethod
    def forward(ctx, tensor, forward, backward):
        ctx.backward_does = backward
        return forward(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.backward_does(gradient), None, None


class GatherThenMultiply(torch.autograd.Function):
    """A product of all ranks' tokens that saves the own ones, and gathers again in backward."""

    @staticmethod
    def forward(ctx, part, weight):
        ctx.save_for_backward(part, weight)
        return gathered(part) @ weight

    @staticmethod
    def backward(ctx, gradient):
        part, weight = ctx.saved_tensors
        return reduced_and_scattered(gradient @ weight.T), gathered(part).T @ gradient


# Before the columns, in forward and in backward, and after the rows.
SEQUENCE = gathered, reduced_and_scattered, reduced_and_scattered, gathered
WAYS = {
    "whole": (identity, identity, identity, identity),
    "both": (identity, reduced, reduced, identity),
    "without_input_sum": (identity, identity, reduced, identity),
    "without_output_sum": (identity, reduced, identity, identity),
    "sum_in_backward_too": (identity, reduced, reduced, reduced),
    "sequence": SEQUENCE,
    "sequence_gathered_again": SEQUENCE,
}


def block(way, residual, first, second):
    normal = layer_norm(residual, [WIDTH])
    if way == "sequence_gathered_again":
        hidden = GatherThenMultiply.apply(normal, first)
    else:
        hidden = Communicate.apply(normal, *WAYS[way][:2]) @ first
    return residual + Communicate.apply(gelu(hidden) @ second, *WAYS[way][2:])


def train(way):
    """Losses, first gradients, the whole layer, bytes that a step kept for backward and sent."""
    torch.manual_seed(0)
    embed, tokens = nn.Linear(WIDTH, WIDTH), torch.randn(TOKENS, WIDTH)
    targets = torch.sin(3 * tokens)
    first, second = torch.randn(WIDTH, HIDDEN) / 4, torch.randn(HIDDEN, WIDTH) / 8
    if way != "whole":
        first, second = own(first, dim=1), own(second)
    if way.startswith("sequence"):
        tokens, targets = own(tokens), own(targets)
    first, second = nn.Parameter(first), nn.Parameter(second)
    optimizer = torch.optim.SGD([*embed.parameters(), first, second], lr=RATE)
    losses, gradients, kept = [], [], {}

    def keep(tensor):
        if not isinstance(tensor, nn.Parameter):
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    for _ in range(STEPS):
        kept.clear()
        sent["bytes"] = 0
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            outputs = block(way, torch.tanh(embed(tokens)), first, second)
            loss = mse_loss(outputs, targets, reduction="sum") / (TOKENS * WIDTH)
        optimizer.zero_grad()
        loss.backward()
        if way.startswith("sequence"):  # the rank has used the whole weights for its own tokens
            for tensor in (loss.data, *(parameter.grad for parameter in embed.parameters())):
                dist.all_reduce(tensor)
        # Of the first step: of the rows, inside of the block, and of the layer below it.
        gradients = gradients or [parameter.grad.clone() for parameter in (second, embed.weight)]
        optimizer.step()
        losses.append(loss.item())
    kept_bytes = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    return losses, gradients, embed.weight.detach(), kept_bytes, sent["bytes"]


def largest_error(gradient, true):
    """The relative error on the rank where it is largest."""
    error = (gradient - true).norm() / true.norm()
    dist.all_reduce(error, dist.ReduceOp.MAX)
    return error.item()


dist.init_process_group("gloo")
facts = {}
for way in WAYS:
    losses, (inside, below), weight, kept_bytes, sent_bytes = train(way)
    if way == "whole":
        true_inside, true_below = inside, below
    true = true_inside if way == "whole" else own(true_inside)
    apart = ((2 * weight - reduced(weight)).norm() / weight.norm()).item()
    errors = largest_error(inside, true), largest_error(below, true_below)
    facts |= {f"{way}_first_loss": losses[0], f"{way}_loss": losses[-1], f"{way}_apart": apart}
    facts |= {f"{way}_inside": errors[0], f"{way}_below": errors[1]}
    facts |= {f"{way}_times": (inside.norm() / true.norm()).item()}
    facts |= {f"{way}_kept_bytes": kept_bytes, f"{way}_sent_bytes": sent_bytes}
    if dist.get_rank() == 0:
        print(f"{way}: gradients off by {errors[0]:.1e} inside and {errors[1]:.1e} below; loss "
              f"{losses[0]:.3f} → {losses[-1]:.3f}, ranks apart by {apart:.1e}; "
              f"in a step kept {kept_bytes:,} B, sent {sent_bytes:,} B")  # fmt: skip
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
report = [facts]
