"""Each chunk runs forward and backward, so that its logits are free before the next one."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy


def loss(hidden: Tensor, head: Tensor, labels: Tensor, chunk: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss and its gradients, with respect to `hidden` and `head`, in float32."""
    num_labels = (labels != -100).sum()
    dist.all_reduce(num_labels)
    weight = head.float().requires_grad_()
    total, of_hidden = torch.zeros(()), []
    for part, of_part in zip(hidden.split(chunk), labels.split(chunk), strict=True):
        vectors = part.float().requires_grad_()
        term = cross_entropy(vectors @ weight.T, of_part, reduction="sum") / num_labels
        term.backward()  # frees the logits
        total += term.detach()
        of_hidden.append(vectors.grad)
    dist.all_reduce(total)
    dist.all_reduce(weight.grad)
    return total, torch.cat(of_hidden), weight.grad
