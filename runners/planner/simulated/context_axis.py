"""The context-parallel axis of a mesh: attention over a sequence that ranks divide.

In: queries, keys and values of this rank's part of the sequence. Out: attention of its queries to
all keys. Torch's own ring attention executes it: keys and values are gathered from every rank, once
forward and once more in backward, and their gradients travel around the ring. The part of a rank
are two chunks of the sequence, as far from its start as from its end, so that under the causal mask
all ranks compute equally much.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor.experimental._context_parallel._attention import (
    _templated_ring_attention,
    _templated_ring_attention_backward,
)
from torch.utils.flop_counter import register_flop_formula, sdpa_backward_flop, sdpa_flop

from runners.planner.simulated.tensor_axis import TensorFunction

_aten = torch.ops.aten
_HEADS, _SEQUENCE = 1, 2  # dimensions


def ring_attention(
    queries: Tensor, keys: Tensor, values: Tensor, group: dist.ProcessGroup
) -> Tensor:
    """Causal attention over the sequence of all ranks of a group.

    Args:
        queries: (batch, heads, sequence, head size), of this rank.
        keys: the same with as many heads, or with fewer, which queries share.
        values: as `keys`.
        group: of the ranks that divide the sequence.

    Returns:
        As `queries`.
    """
    return _RingAttention.apply(queries, keys, values, group)


# --- the kernel of one block: queries of this rank, and keys of one rank


@torch.library.custom_op("planning::attention_block", mutates_args=())
def _block(query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> tuple[Tensor, Tensor]:
    shared = _shared(key, query), _shared(value, query)
    output, logs = _aten._scaled_dot_product_flash_attention_for_cpu(
        query, *shared, is_causal=is_causal
    )
    return output.contiguous(), logs.contiguous()


@_block.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> tuple[Tensor, Tensor]:
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    return output, query.new_empty(query.shape[:-1], dtype=torch.float32)


@torch.library.custom_op("planning::attention_block_backward", mutates_args=())
def _block_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    is_causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    of_query, *others = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, query, _shared(key, query), _shared(value, query), out, logsumexp, 0.0, is_causal
    )
    heads = key.shape[_HEADS], -1
    of_key, of_value = (one.unflatten(_HEADS, heads).sum(_HEADS + 1) for one in others)
    return of_query.contiguous(), of_key, of_value


@_block_backward.register_fake
def _(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    form = torch.contiguous_format
    return tuple(torch.empty_like(one, memory_format=form) for one in (query, key, value))


def _shared(x: Tensor, queries: Tensor) -> Tensor:
    """Heads of keys or values, each as often as queries share it."""
    return x.repeat_interleave(queries.shape[_HEADS] // x.shape[_HEADS], _HEADS)


register_flop_formula(torch.ops.planning.attention_block, get_raw=True)(sdpa_flop)
_of_backward = torch.ops.planning.attention_block_backward
register_flop_formula(_of_backward, get_raw=True)(sdpa_backward_flop)


class _RingAttention(TensorFunction):
    @staticmethod
    def forward(
        context: Any, queries: Tensor, keys: Tensor, values: Tensor, group: dist.ProcessGroup
    ) -> Tensor:
        given = queries, keys, values
        found, logs = _templated_ring_attention(group, _SEQUENCE, _block, *given, is_causal=True)
        context.save_for_backward(*given, found, logs)
        context.group = group
        return found

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, found, logs = context.saved_tensors
        how = context.group, _SEQUENCE, _block_backward, grad, "grad_out"
        gradients = _templated_ring_attention_backward(
            *how, query, key, value, found, logs, is_causal=True
        )
        return *gradients, None
