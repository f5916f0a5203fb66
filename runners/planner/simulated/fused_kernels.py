"""Kernels that are one operation on an accelerator and several on a CPU, as one operation each.

In: tensors, real or fake. Out: the same values, with the memory that the fused kernel would take:
what happens inside allocates nothing that the meter sees.
"""

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("planning::rms_norm", mutates_args=())
def _forward(x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    return (wide * scale * weight.float()).to(x.dtype), scale


@_forward.register_fake
def _(x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)


@torch.library.custom_op("planning::rms_norm_backward", mutates_args=())
def _backward(grad: Tensor, x: Tensor, weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    normal = x.float() * scale
    weighted = grad.float() * weight.float()
    inner = (weighted * normal).mean(-1, keepdim=True)
    of_weight = (grad.float() * normal).flatten(0, -2).sum(0)
    return ((weighted - normal * inner) * scale).to(x.dtype), of_weight.to(weight.dtype)


@_backward.register_fake
def _(grad: Tensor, x: Tensor, weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(weight)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output[1])
    ctx.mark_non_differentiable(output[1])


def _differentiate(context: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
    return (*_backward(grad.contiguous(), *context.saved_tensors), None)


_forward.register_autograd(_differentiate, setup_context=_keep)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float = 1e-5) -> Tensor:
    """RMSNorm as one kernel, which keeps its input and a number for each row.

    Args:
        x: (…, size).
        weight: (size).
        epsilon: added to the mean square.

    Returns:
        (…, size), in the type of `x`.
    """
    if x.device.type == "cuda":  # there torch has that kernel
        return torch.nn.functional.rms_norm(x, weight.shape, weight, epsilon)
    normed: Tensor = _forward(x, weight, epsilon)[0]
    return normed
