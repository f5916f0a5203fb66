"""Training with both all-reduces of a divided MLP, and without each of them in backward.

Two ranks train a residual block: a whole layer, then an MLP whose hidden features they divide.

torchrun --nproc-per-node 2 conjugate_pair.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import gelu, mse_loss

SAMPLES, WIDTH, HIDDEN, STEPS, RATE = 64, 16, 64, 300, 1.0


def summed(tensor):
    total = tensor.detach().clone()
    dist.all_reduce(total)
    return total


class Communicate(torch.autograd.Function):
    """A sum over the ranks in forward, in backward, in both or in neither."""

    @staticmethod
    def forward(ctx, tensor, in_forward, in_backward):
        ctx.sums = in_backward
        return summed(tensor) if in_forward else tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return (summed(gradient) if ctx.sums else gradient), None, None


def train(before=(False, True), after=(True, False), is_divided=True):
    """The losses of a training, and the whole layer that it ends with."""
    torch.manual_seed(0)
    rank, size = dist.get_rank(), dist.get_world_size()
    embed = nn.Linear(WIDTH, WIDTH)
    first, second = torch.randn(WIDTH, HIDDEN) / 4, torch.randn(HIDDEN, WIDTH) / 8
    if is_divided:
        first, second = first.chunk(size, 1)[rank].clone(), second.chunk(size, 0)[rank].clone()
    weights = nn.Parameter(first), nn.Parameter(second)
    samples = torch.randn(SAMPLES, WIDTH)
    targets = torch.sin(3 * samples)
    optimizer = torch.optim.SGD([*embed.parameters(), *weights], lr=RATE)
    losses = []
    for _ in range(STEPS):
        residual = torch.tanh(embed(samples))
        inputs = Communicate.apply(residual, *before) if is_divided else residual
        outputs = gelu(inputs @ weights[0]) @ weights[1]
        outputs = Communicate.apply(outputs, *after) if is_divided else outputs
        loss = mse_loss(residual + outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, embed.weight.detach()


def main():
    dist.init_process_group("gloo")
    ways = {
        "whole": {"is_divided": False},
        "both": {},
        "without_input_sum": {"before": (False, False)},
        "without_output_sum": {"after": (False, False)},
        "sum_in_backward_too": {"after": (True, True)},
    }
    report = {}
    for name, way in ways.items():
        losses, weight = train(**way)
        apart = (2 * weight - summed(weight)).norm() / weight.norm()
        report |= {f"{name}_loss": losses[-1], f"{name}_apart": apart.item()}
        if dist.get_rank() == 0:
            print(
                f"{name:>20}: loss {losses[0]:.4f} → {losses[-1]:.4f}, ranks apart by {apart:.1e}"
            )
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [report]


if __name__ == "__main__":
    report = main()
