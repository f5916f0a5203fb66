"""Finds calls by which a script itself sends values among ranks.

In: collectives, before and after they run. Out: reasons why the module of one process is not known,
numbers that ranks add up, and calls that cut the graph.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import FrameType
from typing import Any

from torch import Tensor

from runners.verify.frames import TORCH, in_function, is_script, place
from runners.verify.graph import Edge, multiplies, reached
from runners.verify.intercept import is_number
from runners.verify.records import tensors_of

INSIDE = " (--against can name it)"  # ends a reason that lies inside the module


class Sends:
    """Of the update that is recorded.

    Args:
        watch: a `Watch`, which knows what runs.

    Attributes:
        reasons: why the module of one process is not known, since the last update of a root began.
        gathered: values without a graph, by the call that cut it, since the last backward pass.
    """

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self.reasons: list[str] = []
        self.gathered: dict[str, list[Tensor]] = {}

    def begins(self, caller: FrameType, name: str, args: Any, kwargs: Any) -> None:
        """A collective begins: does the script send activations itself?"""
        watch, file = self._watch, caller.f_code.co_filename
        if not watch.is_on:
            return
        given = tensors_of((args, kwargs))
        has_graph = any(one.requires_grad and one.numel() > 1 for one in given)
        is_inside = bool(watch.depth) or name.endswith("_autograd") or in_function(caller)
        if file.startswith(TORCH) and "distributed/nn" not in file:
            if not file.endswith("modules/_functions.py"):  # of SyncBatchNorm
                return
        elif is_number(name, args, kwargs) or not (
            is_inside or has_graph or "send" in name or "recv" in name
        ):
            return
        if has_graph and is_script(caller) and not in_function(caller):
            watch.seen.cuts.append(f"{place()} ({name})")
            self.gathered[watch.seen.cuts[-1]] = [one for one in given if not one.requires_grad]
        if "gather" in name and watch.is_idle and self._are_outputs(given):
            says = f"{place()} ({name}) gathers outputs, so only the whole can be compared"
            self.reasons.append(f"{says} (`--one`)")
            return
        self.reasons.append(
            f"it is divided among ranks by hand ({place()} ({name}) sends activations); "
            "the module of one process is not known" + ("" if watch.is_idle else INSIDE)
        )

    def _are_outputs(self, given: Sequence[Tensor]) -> bool:
        """Whether a tensor is computed from outputs of a forward pass of this update."""
        roots = self._watch.roots.values()
        nodes = set[int]().union(*(ids for root in roots for ids in root.nodes()))
        start = [(one.grad_fn, one.output_nr) for one in given if one.grad_fn is not None]
        return any(id(node) in nodes for node in reached(start, nodes))

    def lose(self, start: Sequence[Edge], outputs: Collection[int]) -> None:
        """A backward pass begins: does the loss multiply by values that were gathered so?"""
        lost = (one for one, parts in self.gathered.items() if multiplies(start, outputs, parts))
        self._watch.seen.lost += [one for one in lost if one not in self._watch.seen.lost]

    def ended(self, caller: FrameType, name: str, args: Any, kwargs: Any) -> None:
        """A collective has ended: between forward and backward it may bring values of others."""
        watch = self._watch
        if not watch.is_on:
            return
        given = [one for one in tensors_of((args, kwargs)) if one.is_floating_point()]
        if watch.depth and is_number(name, args, kwargs):
            watch.present.numbers.append(tensors_of((args, kwargs))[0].detach().clone())
        if not watch.is_idle or not is_script(caller):
            return
        for root in (one for one in watch.roots.values() if not one.stepped):
            is_between = any(one.backward is None for one in root.update.forwards)
            if is_between and any(one.numel() > 1 for one in given):
                self.reasons.append(
                    f"values of other ranks, which no gradient reaches, may enter the loss "
                    f"({place()}, {name} between forward and backward)"
                )
            elif root.done and name == "all_reduce":
                root.update.sums += [
                    (place(), one.detach() if kwargs.get("async_op") else one.detach().clone())
                    for one in given if one.numel() == 1
                ]  # fmt: skip
