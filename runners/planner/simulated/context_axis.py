"""The context-parallel axis of a mesh: attention over a sequence that ranks divide.

In: queries, keys and values of this rank's part of the sequence. Out: attention of its queries to
all keys. Torch's own ring attention executes it: keys and values are gathered from every rank, once
forward and once more in backward, and their gradients travel around the ring. The part of a rank
are two chunks of the sequence, as far from its start as from its end, so that under the causal mask
all ranks compute equally much.
"""

from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor.experimental._context_parallel._attention import (
    _templated_ring_attention,
    _templated_ring_attention_backward,
)

from runners.planner.simulated.fused_kernels import attention, attention_backward
from runners.planner.simulated.tensor_axis import TensorFunction

_SEQUENCE = 2  # dimension


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


class _RingAttention(TensorFunction):
    @staticmethod
    def forward(
        context: Any, queries: Tensor, keys: Tensor, values: Tensor, group: dist.ProcessGroup
    ) -> Tensor:
        given = queries, keys, values
        how = group, _SEQUENCE, attention
        output, logs = _templated_ring_attention(*how, *given, is_causal=True)
        context.save_for_backward(*given, output, logs)
        context.group = group
        return output

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, logs = context.saved_tensors
        how = context.group, _SEQUENCE, attention_backward, grad, "grad_out"
        gradients = _templated_ring_attention_backward(
            *how, query, key, value, output, logs, is_causal=True
        )
        return *gradients, None
