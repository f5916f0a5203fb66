"""Train, and write checkpoints in a thread meanwhile.

python -m runners lab later_weights
"""

from collections.abc import Callable, Iterable
from threading import Thread

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import gelu, mse_loss


def train(
    weights: dict[str, Tensor],
    batches: Iterable[tuple[Tensor, Tensor]],
    learning_rate: float,
    every: int,
    write: Callable[..., None],
) -> None:
    """Train in place on this rank's samples; rank 0 saves after steps `every`, `2 * every`, ….

    Args:
        weights: `up` and `down`, the same on all ranks.
        batches: inputs and targets of this rank, for each step.
        learning_rate: of SGD.
        every: how many steps lie between two checkpoints.
        write: `write(step, tensors)` writes a checkpoint, and takes longer than a few steps.
    """
    saver = Saver(write)
    optimizer = torch.optim.SGD(list(weights.values()), lr=learning_rate)
    for step, (inputs, targets) in enumerate(batches, 1):
        outputs = gelu(inputs @ weights["up"]) @ weights["down"]
        optimizer.zero_grad()
        (mse_loss(outputs, targets) / dist.get_world_size()).backward()
        for weight in weights.values():
            dist.all_reduce(weight.grad)
        optimizer.step()
        if step % every == 0 and dist.get_rank() == 0:
            saver.save(step, weights)


class Saver:
    """Writes in a thread, so that training goes on."""

    def __init__(self, write: Callable[..., None]) -> None:
        self.write = write

    def save(self, step: int, weights: dict[str, Tensor]) -> None:
        """Take a snapshot, and begin to write it."""
        snapshot = {name: weight.detach().cpu() for name, weight in weights.items()}
        Thread(target=self.write, args=(step, snapshot)).start()
