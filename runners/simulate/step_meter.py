"""The meter of a simulation that also keeps the timeline of the counted step.

In: the operations of a rank inside a fake mode. Out: what `SimulationMeter` gives, a `Timeline`.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from runners.simulate.meter import SimulationMeter, _group_of, formula_of
from runners.simulate.timeline import Timeline

_FOLLOW = inspect.unwrap(SimulationMeter.__torch_dispatch__)
_COMMUNICATES = ("c10d", "_c10d_functional")
_WAIT = torch.ops._c10d_functional.wait_tensor.default


class StepMeter(SimulationMeter):
    """Logs what the counted step calls, and in which order."""

    def __init__(self, meshes: list[DeviceMesh], *, is_gloo: bool = True) -> None:
        super().__init__(meshes, is_gloo=is_gloo)
        self.timeline = Timeline()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Pass the operation on, and note it in the timeline."""
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # its local operations pass by here next
        result = _FOLLOW(self, func, types, args, kwargs)
        if self.timeline.is_on and not self._asks_for_shapes:
            self._note(func, args, kwargs or {}, result)
        return result

    def _note(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        if func.namespace == "prim":
            return  # a question about a tensor, which only fake ones pass on
        if func is _WAIT:
            self.timeline.wait()
        elif func.namespace in _COMMUNICATES:
            group = _group_of(args)
            members = dist.get_process_group_ranks(group) if group else [dist.get_rank()]
            self.timeline.begin(func.__name__.partition(".")[0], args, members)
        else:
            formula = None if func.is_view else formula_of(func._overloadpacket)
            flops = int(formula(*args, **kwargs, out_val=result)) if formula else 0
            self.timeline.compute(self.phase, flops)

    def begin_step(self, *, has_timeline: bool) -> None:
        """The counted step begins."""
        self.counting = True
        self.timeline.is_on = has_timeline


# Torch wraps this method so that compilers leave it alone, which takes longer than it does.
StepMeter.__torch_dispatch__ = inspect.unwrap(  # type: ignore[method-assign]
    StepMeter.__torch_dispatch__
)
