"""Adam whose moments are sharded over the ranks: ZeRO-1.

python -m runners lab zero1
"""

from torch import nn

BETAS = (0.9, 0.999)


class ShardedAdam:
    """Adam for parameters that every rank has, with moments for one shard of them.

    Every rank has all parameters, with equal values. They are float32 of different shapes; their
    elements need not divide evenly among the ranks. Use a reduce-scatter and an
    all-gather, such as `dist.reduce_scatter_tensor` and `dist.all_gather_into_tensor`, no other
    collective.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        rank: int,
        world_size: int,
        lr: float,
        eps: float,
    ) -> None:
        raise NotImplementedError("write __init__ here")

    def step(self) -> None:
        """Update all parameters in place, on all ranks, with the mean of the ranks' gradients.

        Every `parameter.grad` is the gradient of this rank's own samples. The update is that of
        `torch.optim.Adam` without weight decay. The values of `parameter.grad` stay as they are.
        """
        raise NotImplementedError("write step here")
