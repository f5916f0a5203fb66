"""DDP's reducer, in Python: the one of torch reads tensors' data, and fake tensors have none.

In: what `DistributedDataParallel` tells its reducer. Out: the same buckets, copies and collectives
at the same moments as those of `torch/csrc/distributed/c10d/reducer.cpp`. Buckets are allocated
when it is built, and once more in the order of gradients. A gradient is divided into its bucket
when it is ready, and a full bucket is reduced at once. When all are reduced, buckets are copied
back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import _compute_bucket_assignment_by_size
from torch.autograd import Variable


@dataclass(eq=False)
class Bucket:
    """Gradients that are reduced together."""

    own: list[nn.Parameter]  # whose gradients these are
    whole: Tensor  # (elements of all its parameters), in one allocation
    views: list[Tensor]  # of it, one a parameter, in the parameter's shape
    num_pending: int = 0
    is_reduced: bool = False


class _Silent:
    """Accepts every other call of DDP, such as those that log, and does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class Reducer(_Silent):
    """Stands for `torch.distributed.Reducer`, whose arguments it takes in the same order."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        bucket_indices: list[list[int]],
        limits: object,
        group: dist.ProcessGroup,
        sparse: object,
        cap_bytes: int,
        find_unused: object,
        is_view: bool,
        names: object,
        first_cap_bytes: int,
        skips_unused: object = None,
        uses_python: object = None,
        limits_again: Sequence[int] | None = None,
        copies_together: object = None,
    ) -> None:
        self._parameters = list(parameters)
        self._group, self._is_view = group, is_view
        self._divisor = group.size()
        self._limits_again = list(limits_again or (first_cap_bytes, cap_bytes))
        self._order: list[int] = []  # of parameters, as their gradients became ready
        self._expects = self._has_rebuilt = False
        self._buckets: list[Bucket] = []
        self._build(bucket_indices)
        for index, parameter in enumerate(self._parameters):
            parameter.register_post_accumulate_grad_hook(partial(self._ready, index))

    @torch.no_grad()
    def _build(self, indices: list[list[int]]) -> None:
        self._buckets.clear()
        self._place: dict[int, tuple[Bucket, int]] = {}
        for of_bucket in indices:
            own = [self._parameters[index] for index in of_bucket]
            count = sum(parameter.numel() for parameter in own)
            whole = torch.empty(count, dtype=own[0].dtype, device=own[0].device)
            views, start = [], 0
            for parameter in own:
                views.append(whole.narrow(0, start, parameter.numel()).view(parameter.shape))
                start += parameter.numel()
            bucket = Bucket(own, whole, views)
            self._buckets.append(bucket)
            self._place |= {index: (bucket, k) for k, index in enumerate(of_bucket)}

    def _rebuild_buckets(self) -> bool:
        """Rebuild the buckets once, before the second forward pass, in the order of gradients."""
        if self._has_rebuilt or len(self._order) < len(self._parameters):
            return False
        indices, _ = _compute_bucket_assignment_by_size(
            [self._parameters[index] for index in self._order],
            self._limits_again,
            [False] * len(self._order),
            self._order,
        )
        self._build(indices)
        self._has_rebuilt = True
        return True

    def prepare_for_backward(self, outputs: object) -> None:
        """Expect gradients from now on."""
        self._expects = True
        for bucket in self._buckets:
            bucket.num_pending, bucket.is_reduced = len(bucket.own), False

    def _ready(self, index: int, _: Tensor) -> None:
        if self._expects:
            self._copy(index)

    @torch.no_grad()
    def _copy(self, index: int) -> None:
        """Copy a gradient that is ready into its bucket, and reduce buckets that are full."""
        if not self._has_rebuilt:
            self._order.append(index)
        bucket, k = self._place[index]
        parameter, view = bucket.own[k], bucket.views[k]
        gradient = parameter.grad
        assert gradient is not None
        if gradient.untyped_storage()._cdata != bucket.whole.untyped_storage()._cdata:
            torch.mul(gradient, 1 / self._divisor, out=view)
            if self._is_view:
                parameter.grad = view
        else:
            view.div_(self._divisor)
        del gradient
        bucket.num_pending -= 1
        for ready in self._buckets:  # which leave in their order
            if ready.num_pending:
                break
            if not ready.is_reduced:
                ready.is_reduced = True
                dist.all_reduce(ready.whole, group=self._group, async_op=True)
                if ready is self._buckets[-1]:
                    Variable._execution_engine.queue_callback(self._finish)

    @torch.no_grad()
    def _finish(self) -> None:
        """Copy the buckets back into gradients, after backward."""
        self._expects = False
        for bucket in [] if self._is_view else self._buckets:
            for parameter, view in zip(bucket.own, bucket.views, strict=True):
                assert parameter.grad is not None
                parameter.grad.copy_(view)


class Logger(_Silent):
    """Stands for `torch.distributed.Logger`: it logs nothing."""

    def __init__(self, reducer: Reducer) -> None:
        """Take the arguments of torch's logger; the reducer is not kept."""
