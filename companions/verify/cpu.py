"""Runs a script that is written for GPUs on CPUs: the option `--cpu`.

In: a script that names `cuda` and `nccl`. Out: the same calls on CPU tensors and over gloo. A mode
of torch replaces devices in calls of tensors and factories; a few functions that read a device or
a backend themselves are called with another one; streams and events do nothing.
`torch.cuda.is_available()` stays False. A call that still asks for a GPU ends the script, and
`check` names it in one line.
"""

from __future__ import annotations

import inspect
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from proofbook.companions.verify.intercept import replace
from proofbook.companions.verify.records import ScriptFailure
from proofbook.runners.system.errors import FixableError

_ASKS = re.compile(r"cuda|nccl|nvidia|\bgpus?\b|accelerator device", re.IGNORECASE)
_Function = Callable[..., Any]


def check(failure: ScriptFailure, *, is_mapped: bool) -> None:
    """Raise FixableError if a script's failure asks for a GPU; `is_mapped`: `--cpu` was given."""
    if _ASKS.search(failure.error) or "is_available" in failure.text:
        line = failure.text.strip().rpartition("\n")[2].strip()
        asks = f"{failure.place}: {line}: it needs a GPU ({failure.error})"
        raise FixableError(
            f"--cpu cannot map {asks}" if is_mapped else f"{asks}; try --cpu (CPUs and gloo)"
        )


def _device(value: Any) -> Any:
    """The CPU for a CUDA device; any other value as it is."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    is_cuda = isinstance(value, str | torch.device) and str(value).startswith("cuda")
    return "cpu" if is_number or is_cuda else value


def _moved(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`Tensor.to` on the CPU; a tensor that leaves the GPU or pinned memory is copied."""
    is_host = any(isinstance(arg, str) and arg == "cpu" for arg in (*args, *kwargs.values()))
    named = {name: _device(arg) for name, arg in kwargs.items()}
    moved: Tensor = tensor.to(*map(_device, args), **named)
    is_copied = moved is tensor and (is_host or hasattr(tensor, "pinned_by_verify"))
    return moved.clone() if is_copied else moved


def _pinned(tensor: Tensor) -> Tensor:
    tensor.pinned_by_verify = True  # type: ignore[attr-defined]
    return tensor


_METHODS: dict[Any, _Function] = {
    Tensor.to: _moved,
    Tensor.cuda: lambda tensor, *_, **__: _moved(tensor, "cuda"),
    Tensor.cpu: lambda tensor, *_, **__: tensor.clone(),
    Tensor.pin_memory: lambda tensor, *_: _pinned(tensor.clone()),
    Tensor.record_stream: lambda *_: None,
}


class _OnCpu(TorchFunctionMode):
    """Replaces devices in calls of tensors and factories."""

    def __torch_function__(
        self, func: Any, _: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _METHODS:
            return _METHODS[func](*args, **(kwargs or {}))
        if not kwargs:
            return func(*args)
        own = {name: arg for name, arg in kwargs.items() if name != "pin_memory"}
        if "device" in own:
            own["device"] = _device(own["device"])
        value = func(*args, **own)
        return _pinned(value) if kwargs.get("pin_memory") else value


class _Stream(nullcontext[None]):
    """A stream or an event, whose methods do nothing; time is that of the host."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        self.record()

    def __getattr__(self, name: str) -> _Function:
        return lambda *_, **__: self

    def record(self, *_: Any) -> None:
        self.seconds = time.perf_counter()

    def elapsed_time(self, end: _Stream) -> float:
        """Milliseconds from this event to another."""
        return 1e3 * (end.seconds - self.seconds)


_NOTHING = """set_device synchronize empty_cache ipc_collect set_stream init manual_seed seed
    seed_all manual_seed_all reset_peak_memory_stats reset_max_memory_allocated
    set_per_process_memory_fraction"""
_ZERO = "memory_allocated max_memory_allocated memory_reserved max_memory_reserved utilization"
_STREAMS = "Stream Event current_stream default_stream stream device"


def _functions() -> dict[str, Any]:
    """Replacements of functions of `torch.cuda`, by name."""
    page = os.sysconf("SC_PAGE_SIZE")
    free, total = page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")
    values: dict[str, Any] = {
        "is_available": False, "is_bf16_supported": True, "memory_stats": Counter[str](),
        "device_count": int(os.environ.get("LOCAL_WORLD_SIZE", "1")), "memory_summary": "",
        "current_device": int(os.environ.get("LOCAL_RANK", "0")), "mem_get_info": (free, total),
        "get_device_name": "CPU", "get_device_capability": (0, 0),
        "get_device_properties": SimpleNamespace(
            name="CPU", total_memory=total, major=0, minor=0, multi_processor_count=os.cpu_count()
        ),
        **dict.fromkeys(_NOTHING.split()), **dict.fromkeys(_ZERO.split(), 0),
    }  # fmt: skip
    functions = {name: lambda *_, value=value, **__: value for name, value in values.items()}
    return functions | {
        **dict.fromkeys(_STREAMS.split(), _Stream),
        "get_rng_state": lambda *_: torch.get_rng_state(),  # of the generator that draws here
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
    }


# By the name of an argument of other functions, the value in its place.
_ARGUMENTS: dict[str, _Function] = {
    "backend": lambda _: "gloo", "device": _device, "device_type": _device,
    "map_location": lambda value: value if callable(value) else "cpu",
    **dict.fromkeys(("device_id", "pg_options", "device_ids", "output_device"), lambda _: None),
}  # fmt: skip


def _mapped(original: _Function, /, *args: Any, **kwargs: Any) -> Any:
    bound = inspect.signature(original).bind(*args, **kwargs)
    bound.apply_defaults()
    for name in _ARGUMENTS.keys() & bound.arguments.keys():
        bound.arguments[name] = _ARGUMENTS[name](bound.arguments[name])
    return original(*bound.args, **bound.kwargs)


class _GeneratorType(type):
    """The type of a class that makes generators on the CPU, and whose instances are torch's."""

    def __call__(cls, device: Any = "cpu") -> Any:
        return _GENERATOR(_device(device))

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, _GENERATOR)


_GENERATOR = torch.Generator


def install() -> None:
    """Replace CUDA functions and arguments in torch, so that a GPU script runs on CPU and gloo."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.set_autocast_dtype("cpu", torch.get_autocast_dtype("cuda"))
    torch.Generator = _GeneratorType("Generator", (), {})  # type: ignore[assignment, misc]
    for name, function in _functions().items():
        setattr(torch.cuda, name, function)
    for name in ("range_push", "range_pop", "mark"):
        setattr(torch.cuda.nvtx, name, lambda *_: 0)
    replace("sdpa_kernel", lambda *_, **__: nullcontext(), nn.attention)
    for name in ("init_process_group", "new_group", "barrier"):
        replace(name, _mapped, dist, dist.distributed_c10d)
    for kind in (
        DistributedDataParallel, FullyShardedDataParallel, DeviceMesh, DeviceContext,
        torch.autocast, torch.amp.GradScaler,
    ):  # fmt: skip
        replace("__init__", _mapped, kind)
    replace("load", _mapped, torch)
    replace("to", lambda to, own, *args, **kw: to(own, *map(_device, args), **kw), nn.Module)
    _OnCpu().__enter__()  # type: ignore[no-untyped-call]
