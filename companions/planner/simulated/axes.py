"""The tensor-parallel and context-parallel axes of a mesh: what their ranks send each other.

In: activations of one rank. Out: the same, summed, gathered or scattered over the axis; attention
to the keys of all ranks. Layers are built at this rank's share of their width (Megatron's column
and row parallel layers), so that what a rank holds are plain tensors, and FSDP and DDP can wrap
them along another axis. With sequence parallelism, activations between these layers are (batch,
sequence / ranks, hidden).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental._context_parallel._attention import (
    _templated_ring_attention,
    _templated_ring_attention_backward,
)

from proofbook.companions.planner.simulated.fused_kernels import attention, attention_backward

Exchange = Callable[[Tensor], Tensor]
_FUNCTIONAL = torch.ops._c10d_functional
_SEQUENCE = 2  # dimension of queries, keys and values


@dataclass(frozen=True)
class TensorAxis:
    """The ranks among which layers are divided."""

    mesh: DeviceMesh | None = None  # of these ranks; None for a single one
    size: int = 1
    has_sequence_parallel: bool = False  # activations between layers are divided along the sequence
    # what is gathered for a product is kept for backward (torch); else a rank keeps its part and
    # gathers again in backward (Megatron-LM)
    keeps_gathered: bool = False

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The process group of these ranks."""
        return None if self.mesh is None else self.mesh.get_group()

    def products(self, x: Tensor, *layers: nn.Module) -> Sequence[Tensor]:
        """Products of the whole activation, in order, with layers, each divided by columns."""
        weights: list[Any] = [layer.weight for layer in layers]
        biases: list[Any] = [getattr(layer, "bias", None) for layer in layers]
        if self.size == 1 or not self.has_sequence_parallel or self.keeps_gathered:
            whole = self.enter(x)
            return [F.linear(whole, *pair) for pair in zip(weights, biases, strict=True)]
        if torch.is_autocast_enabled(x.device.type):  # as autocast would for each product
            dtype = torch.get_autocast_dtype(x.device.type)
            x, weights = x.to(dtype), [weight.to(dtype) for weight in weights]
            biases = [None if bias is None else bias.to(dtype) for bias in biases]
        return _GatheredProducts.apply(x, self, *weights, *biases)

    def enter(self, x: Tensor) -> Tensor:
        """The whole activation: gathered if divided, else `x`, whose gradient is all-reduced."""
        if self.size == 1:
            return x
        if self.has_sequence_parallel:
            return exchanged(x, self.gathered, self.scattered)
        return exchanged(x, lambda whole: whole.view_as(whole), self._summed)

    def leave(self, x: Tensor) -> Tensor:
        """The sum of all ranks' addends: all-reduced, or scattered to parts of the sequence."""
        if self.size == 1:
            return x
        if self.has_sequence_parallel:
            return exchanged(x, self.scattered, self.gathered)
        return exchanged(x, self._summed, lambda grad: grad)

    def sum(self, x: Tensor, operation: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> None:
        """All-reduce in place; nothing where there is a single rank."""
        if self.size > 1:
            dist.all_reduce(x, operation, group=self.group)

    def _summed(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        self.sum(x)
        return x

    def share(self, count: int) -> int:
        """This rank's part of a width, which `Question.check` has found divided evenly."""
        return count // self.size

    def gathered(self, x: Tensor) -> Tensor:
        """(batch, sequence / ranks, …) of every rank as (batch, sequence, …)."""
        parts = x.new_empty((self.size, *x.shape))
        dist.all_gather_single(parts.flatten(0, 1), x.contiguous(), group=self.group)
        return parts.movedim(0, 1).reshape(x.shape[0], -1, *x.shape[2:])

    def scattered(self, x: Tensor) -> Tensor:
        """Reduce-scatter (batch, sequence, …): the sum over ranks, (batch, sequence / ranks, …).

        By the functional collective, whose result selective checkpointing can keep.
        """
        parts = x.reshape(x.shape[0], self.size, -1, *x.shape[2:]).movedim(1, 0).contiguous()
        assert self.group is not None
        given = parts.flatten(0, 1), "sum", self.size, self.group.group_name
        own: Tensor = _FUNCTIONAL.wait_tensor(_FUNCTIONAL.reduce_scatter_tensor(*given))
        return own


def exchanged(x: Tensor, forward: Exchange, backward: Exchange) -> Tensor:
    """Apply a collective to a tensor, and in backward another one to its gradient."""
    return _Exchange.apply(x, forward, backward)


class TensorFunction(Function):
    """A `Function` that returns one tensor."""

    apply: Callable[..., Tensor]  # which torch leaves without types


class _Exchange(TensorFunction):
    @staticmethod
    def forward(context: Any, x: Tensor, forward: Exchange, backward: Exchange) -> Tensor:
        context.exchange = backward
        result = forward(x)
        if result is x:
            context.mark_dirty(x)
        return result

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return context.exchange(grad), None, None


class _GatheredProducts(Function):
    """Products of the gathered sequence, which backward gathers again for gradients of weights.

    As `LinearWithGradAccumulationAndAsyncCommunication` of Megatron-LM: what is kept is this rank's
    part of the sequence.
    """

    apply: Callable[..., tuple[Tensor, ...]]

    @staticmethod
    def forward(
        context: Any, x: Tensor, axis: TensorAxis, *parameters: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Products with weights, and as many biases."""
        half = len(parameters) // 2
        weights, biases = parameters[:half], parameters[half:]
        context.save_for_backward(x, *weights)
        context.axis = axis
        whole = axis.gathered(x)
        pairs = zip(weights, biases, strict=True)
        return tuple(F.linear(whole, weight, bias) for weight, bias in pairs if weight is not None)

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the arguments, as far as they are needed."""
        x, *weights = context.saved_tensors
        needs = context.needs_input_grad[2:]
        rows = [grad.flatten(0, 1) for grad in grads]
        whole = context.axis.gathered(x).flatten(0, 1) if any(needs[: len(weights)]) else None
        of_x = None
        if context.needs_input_grad[0]:
            total = grads[0] @ weights[0]
            for row, weight in zip(rows[1:], weights[1:], strict=True):
                total.flatten(0, 1).addmm_(row, weight)
            of_x = context.axis.scattered(total)
        of_weights = [None if whole is None else row.t() @ whole for row in rows]
        of_biases = [
            row.sum(0) if is_needed else None
            for row, is_needed in zip(rows, needs[len(weights) :], strict=True)
        ]
        return of_x, None, *of_weights, *of_biases


class DividedCrossEntropy(TensorFunction):
    """Cross-entropy of logits whose vocabulary is divided among ranks, as Megatron computes it.

    Logits (tokens, vocabulary / ranks) and targets (tokens) give the mean loss; kept for backward
    is the softmax, in fp32. Compiled, its gradient is computed in a copy: torch.compile makes of
    the write at the targets (`index_put_`) one into a new tensor, while the softmax is still there.
    """

    @staticmethod
    def forward(
        context: Any, logits: Tensor, targets: Tensor, axis: TensorAxis, is_compiled: bool
    ) -> Tensor:
        """The mean loss over tokens; ranks all-reduce maxima, targets' logits and sums."""
        wide = logits.float()
        if wide is logits:
            wide = logits.clone()
        largest = wide.amax(-1)
        axis.sum(largest, dist.ReduceOp.MAX)
        wide.sub_(largest.unsqueeze(-1))
        own = wide.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        axis.sum(own)
        wide.exp_()
        total = wide.sum(-1)
        axis.sum(total)
        loss = (total.log() - own).mean()
        wide.div_(total.unsqueeze(-1))
        context.save_for_backward(wide, targets)
        context.dtype, context.is_compiled = logits.dtype, is_compiled
        return loss

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        """A gradient of the logits' size and type, made of the softmax; values are arbitrary."""
        softmax, targets = context.saved_tensors
        if context.is_compiled:
            softmax = softmax.clone()
        softmax.scatter_(-1, targets.unsqueeze(-1), 0.0)  # of the right size; values play no role
        softmax.mul_(grad)
        return softmax.to(context.dtype), None, None, None


class RingAttention(TensorFunction):
    """Causal attention over the sequence of all ranks of a group, by torch's own ring attention.

    Queries, keys and values are (batch, heads, sequence, head size), of this rank; the latter may
    have fewer heads, which queries share. Keys and values are gathered from every rank, once
    forward and once more in backward, and their gradients travel around the ring. The part of a
    rank are two chunks of the sequence, as far from its start as from its end, so that under the
    causal mask all ranks compute equally much.
    """

    @staticmethod
    def forward(
        context: Any, queries: Tensor, keys: Tensor, values: Tensor, group: dist.ProcessGroup
    ) -> Tensor:
        """Attention of this rank's queries to all ranks' keys; the shape of queries."""
        given = queries, keys, values
        how = group, _SEQUENCE, attention
        output, logs = _templated_ring_attention(*how, *given, is_causal=True)
        context.save_for_backward(*given, output, logs)
        context.group = group
        return output

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of this rank's queries, keys and values, and None for the group."""
        query, key, value, output, logs = context.saved_tensors
        how = context.group, _SEQUENCE, attention_backward, grad, "grad_out"
        gradients = _templated_ring_attention_backward(
            *how, query, key, value, output, logs, is_causal=True
        )
        return *gradients, None
