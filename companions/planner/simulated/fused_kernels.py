"""Kernels that are one operation on an accelerator and several on a CPU, as one operation each.

In: tensors, real or fake. Out: the same values, with the memory that the fused kernel would take:
what happens inside allocates nothing that the meter sees.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula, sdpa_backward_flop, sdpa_flop

EPSILON = 1e-5  # added to a mean square


@torch.library.custom_op("planning::rms_norm", mutates_args=())
def _forward(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
    return (wide * scale * weight.float()).to(x.dtype), scale


@_forward.register_fake
def _(x: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
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


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, output[1])
    ctx.mark_non_differentiable(output[1])


def _differentiate(context: Any, grad: Tensor, _: Tensor) -> Any:
    return _backward(grad.contiguous(), *context.saved_tensors)


_forward.register_autograd(_differentiate, setup_context=_keep)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMSNorm of (…, size) as one kernel, which keeps its input and a number for each row."""
    normed: Tensor = _forward(x, weight)[0]
    return normed


@torch.library.custom_op("planning::attention", mutates_args=())
def attention(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, window: int = 0
) -> tuple[Tensor, Tensor]:
    """Attention as one kernel, as FlashAttention: outputs, and logarithms of the weights' sums.

    It keeps inputs and results. Inputs are (batch, heads, sequence, size), of which values may have
    another size; keys and values may have fewer heads, which queries share. Under the causal mask
    each token attends to the last `window` ones, itself included, or with 0 to all before it. The
    outputs have the shape of queries, with the size of values; the logarithms, in fp32, are (batch,
    heads, sequence).
    """
    scores = _scores(query, key, is_causal, window)
    values = _shared(value, query)
    return _by_tokens(scores.softmax(-1).to(value.dtype) @ values), scores.logsumexp(-1)


@torch.library.custom_op("planning::attention_backward", mutates_args=())
def attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    is_causal: bool,
    window: int = 0,
    grad_logs: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values, from results over these keys or over more."""
    weights = (_scores(query, key, is_causal, window) - logsumexp.unsqueeze(-1)).exp()
    wide = grad_out.float()
    of_scores = wide @ _shared(value, query).float().mT - (wide * out).sum(-1, keepdim=True)
    of_scores = of_scores if grad_logs is None else of_scores + grad_logs.unsqueeze(-1)
    of_scores = of_scores * weights / math.sqrt(query.shape[-1])
    heads = key.shape[1], -1
    of_query = of_scores @ _shared(key, query).float()
    of_key, of_value = of_scores.mT @ query.float(), weights.mT @ wide
    of_key, of_value = (gradient.unflatten(1, heads).sum(2) for gradient in (of_key, of_value))
    pairs = zip((of_query, of_key, of_value), (query, key, value), strict=True)
    of_query, of_key, of_value = (_by_tokens(gradient.type_as(given)) for gradient, given in pairs)
    return of_query, of_key, of_value


def _scores(query: Tensor, key: Tensor, is_causal: bool, window: int) -> Tensor:
    scores = (query @ _shared(key, query).mT).float() / math.sqrt(query.shape[-1])
    if not is_causal:
        return scores
    length = query.shape[-2]
    mask = torch.ones(length, length, device=query.device).tril().triu(1 - (window or length))
    return scores + mask.log()


def _shared(x: Tensor, queries: Tensor) -> Tensor:
    """Heads of keys or values, each as often as queries share it."""
    return x.repeat_interleave(queries.shape[1] // x.shape[1], 1)


def _by_tokens(x: Tensor) -> Tensor:
    """A copy in which the heads of a token lie side by side, as those of inputs do."""
    return x.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)


def _keep_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.is_causal, ctx.window = inputs
    ctx.save_for_backward(*tensors, *output)


def _differentiate_attention(ctx: Any, grad: Tensor, of_logs: Tensor) -> tuple[Tensor | None, ...]:
    given = grad, *ctx.saved_tensors, ctx.is_causal, ctx.window, of_logs
    return (*attention_backward(*given), None, None)


@attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    out = value.new_empty(*query.shape[:-1], value.shape[-1])
    return _by_tokens(out), query.new_empty(query.shape[:-1]).float()


@attention_backward.register_fake
def _(_: Tensor, *given: Tensor, **named: Any) -> tuple[Tensor, ...]:
    return tuple(map(_by_tokens, given[:3]))


attention.register_autograd(_differentiate_attention, setup_context=_keep_attention)


@register_flop_formula(torch.ops.planning.attention)
def _flops(*given: Any, out_shape: Any) -> int:
    return _within(int(sdpa_flop(*given[:3])), given[0][-2], *given[4:])


@register_flop_formula(torch.ops.planning.attention_backward)
def _backward_flops(*given: Any, out_shape: Any) -> int:
    return _within(int(sdpa_backward_flop(*given[:4])), given[1][-2], *given[7:8])


def _within(flops: int, length: int, window: int = 0) -> int:
    """FLOPs of the scores within a window; the meter halves them under a causal mask."""
    return flops - flops * max(0, length - (window or length)) ** 2 // length**2
