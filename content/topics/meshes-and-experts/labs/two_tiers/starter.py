"""An all-reduce over nodes whose ranks have fast links, with slow links between the nodes.

python -m runners lab two_tiers
"""

from torch import Tensor
from torch.distributed import ProcessGroup


def all_reduce(tensor: Tensor, node: ProcessGroup, peers: ProcessGroup) -> Tensor:
    """Return the sum of all ranks' tensors; leave `tensor` as it is.

    `node` has the ranks of this rank's node. `peers` has the ranks with the same place on every
    node. The tensor has one axis, which the ranks of a node divide without remainder.
    """
    raise NotImplementedError("write all_reduce here")
