"""The snapshot is a copy, made before the next step; one write at a time, the last awaited."""

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
    """Train in place on this rank's samples; rank 0 saves after steps `every`, `2 * every`, …."""
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
    saver.wait()


class Saver:
    """Writes in a thread, so that training goes on; one checkpoint at a time."""

    def __init__(self, write: Callable[..., None]) -> None:
        self.write, self.thread = write, Thread()

    def save(self, step: int, weights: dict[str, Tensor]) -> None:
        """Take a snapshot, and begin to write it."""
        self.wait()
        snapshot = {name: weight.detach().clone() for name, weight in weights.items()}
        self.thread = Thread(target=self.write, args=(step, snapshot))
        self.thread.start()

    def wait(self) -> None:
        """Wait for the write that was begun, if there is one."""
        if self.thread.is_alive():
            self.thread.join()
