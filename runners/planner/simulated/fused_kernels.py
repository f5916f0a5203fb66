"""Kernels that are one operation on an accelerator and several on a CPU, as one operation each.

In: tensors, real or fake. Out: the same values, with the memory that the fused kernel would take:
what happens inside allocates nothing that the meter sees.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula, sdpa_backward_flop, sdpa_flop


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
    normed: Tensor = _forward(x, weight, epsilon)[0]
    return normed


@torch.library.custom_op("planning::attention", mutates_args=())
def attention(query: Tensor, key: Tensor, value: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Causal attention as one kernel, which keeps inputs and results, as FlashAttention does.

    Inputs are (batch, heads, sequence, size), of which values may have another size. Each token
    attends to the last `window` ones, itself included, or with 0 to all. The results have the shape
    of values, and (batch, heads, sequence): logarithms of the weights' sums, in fp32.
    """
    return _attended(query, key, value, window)


@torch.library.custom_op("planning::attention_backward", mutates_args=())
def _attention_backward(
    query: Tensor, key: Tensor, value: Tensor, window: int, kept: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    pull = torch.func.vjp(partial(_attended, window=window), query, key, value)[1]
    of_query, of_key, of_value = map(_by_tokens, pull(tuple(kept[2:])))
    return of_query, of_key, of_value


def _attended(query: Tensor, key: Tensor, value: Tensor, window: int) -> tuple[Tensor, Tensor]:
    length = query.shape[-2]
    seen = torch.ones(length, length, device=query.device).tril().triu(1 - (window or length))
    scores = (query @ key.mT / math.sqrt(query.shape[-1])).float() + seen.log()
    return _by_tokens(scores.softmax(-1).to(value.dtype) @ value), scores.logsumexp(-1)


def _by_tokens(x: Tensor) -> Tensor:
    """A copy in which the heads of a token lie side by side, as those of inputs do."""
    return x.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)


def _keep_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.window = inputs
    ctx.save_for_backward(*tensors, *output)


def _differentiate_attention(context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    *inputs, output, logs = context.saved_tensors
    return (*_attention_backward(*inputs, context.window, [output, logs, *grads]), None)


attention.register_fake(lambda q, _, v, window: (_by_tokens(v), q.new_empty(q.shape[:-1]).float()))
_attention_backward.register_fake(lambda *given: tuple(map(_by_tokens, given[:3])))
attention.register_autograd(_differentiate_attention, setup_context=_keep_attention)


@register_flop_formula([torch.ops.planning.attention, torch.ops.planning.attention_backward])
def _flops(query: Any, key: Any, value: Any, window: int, kept: Any = (), **_: Any) -> int:
    """Of the scores that a token sees; torch counts all."""
    given, length = (query, key, value), int(query[-2])
    whole = int(sdpa_backward_flop(kept[2], *given) if kept else sdpa_flop(*given))
    return (whole - whole * max(0, length - (window or length)) ** 2 // length**2) // 2
