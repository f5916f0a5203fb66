"""The accelerator as torch shows it: the few calls of `torch.cuda` that the runners make.

In: torch, the environment. Out: which kind of device ranks get, how many there are, and what the
caching allocator of one counts. The runners reach `torch.cuda` through this module, so that a test
can put a stand-in here. `PROOFBOOK_DEVICE=cpu` measures as CPU where there is an accelerator.

torch loads at the first call that needs it: a machine without a driver's files has no device to
ask it about, and commands that only tell need not wait for it.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proofbook.runners.system.errors import FixableError

if TYPE_CHECKING:
    import torch

DEVICE = "PROOFBOOK_DEVICE"
_ASKS_DRIVER = "PYTORCH_NVML_BASED_CUDA_CHECK"  # its library counts the devices
# What a driver of NVIDIA's, of AMD's, or of Windows below Linux puts there.
DEVICE_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


@dataclass(frozen=True)
class Allocated:
    """Bytes that were requested of the caching allocator of one device and not freed.

    Torch counts twice, and never too little. Its `allocated_bytes` are blocks: rounded up to 512
    bytes, and where less than 1 MiB of a block is left, that as well. On an H200, 14 tensors of
    16 MB took 16 MiB each. Its `requested_bytes` keep what is freed until other streams have done
    with it. So the smaller of the two is taken.
    """

    now_bytes: int
    peak_bytes: int
    num_blocks_at_most: int


def kind() -> str:
    """The kind of device of ranks: `cuda`, or `cpu` where no accelerator is there or it is hidden.

    FixableError where the environment asks for any other kind.
    """
    chosen = os.environ.get(DEVICE, "")
    if chosen not in ("", "cpu"):
        raise FixableError(f"{DEVICE} is {chosen!r}; set it to cpu, or leave it out")
    is_there = any(Path(name).exists() for name in DEVICE_FILES)
    if chosen == "cpu" or not (is_there or "torch" in sys.modules):
        return "cpu"
    # Once CUDA's runtime was asked, no process that is forked afterwards could use a device.
    with _environment(**{_ASKS_DRIVER: "1"}):
        return "cuda" if _cuda().is_available() else "cpu"


def _environment(**values: str) -> AbstractContextManager[object]:
    """Within, variables of the environment have other values."""
    from unittest.mock import patch  # it loads asyncio, for which `show` need not wait

    return patch.dict(os.environ, values)


def _cuda() -> Any:  # noqa: ANN401
    """`torch.cuda`, which is loaded at the first call that needs it."""
    import torch

    return torch.cuda


def hidden() -> AbstractContextManager[object]:
    """Within, torch sees no accelerator: an Adam under fake tensors would start CUDA there."""
    return _environment(**{"CUDA_VISIBLE_DEVICES": "", _ASKS_DRIVER: "1"})


def num_devices() -> int:
    """The number of accelerators for ranks; 0 where ranks stay on the CPU."""
    return int(_cuda().device_count()) if kind() == "cuda" else 0


def described() -> list[tuple[str, int]]:
    """Name and bytes of memory of each accelerator."""
    devices = [_cuda().get_device_properties(index) for index in range(num_devices())]
    return [(device.name, device.total_memory) for device in devices]


def select(device: torch.device) -> None:
    """Make an accelerator the current one of this process; nothing on CPU."""
    if device.type == "cuda":
        _cuda().set_device(device)


def synchronize(device: torch.device) -> None:
    """Wait until an accelerator has finished, so that a clock read now means something."""
    if device.type == "cuda":
        _cuda().synchronize(device)


def allocated(device: torch.device) -> Allocated:
    """`Allocated`: bytes requested of the device's allocator, now and at most; most blocks."""
    stats = _cuda().memory_stats(device)

    def least(when: str) -> int:
        both = (stats.get(f"{kind}_bytes.all.{when}", 0) for kind in ("requested", "allocated"))
        return int(min(both))

    return Allocated(
        now_bytes=least("current"),
        peak_bytes=least("peak"),
        num_blocks_at_most=stats.get("allocation.all.peak", 0),
    )


def held_bytes(device: torch.device) -> int:
    """Bytes requested for the blocks of the device's allocator that are in use now.

    The blocks are walked, so no rounding counts, and no block that only waits for another stream.
    """
    segments = [part for part in _cuda().memory_snapshot() if part["device"] == device.index]
    blocks = (block for segment in segments for block in segment["blocks"])
    return sum(block["requested_size"] for block in blocks if block["state"] == "active_allocated")


def reset_peak(device: torch.device) -> None:
    """Restart the peak of `allocated` at the bytes that are held now."""
    _cuda().reset_peak_memory_stats(device)


def free_workspaces(device: torch.device) -> int:
    """Free the workspaces of cuBLAS, one for each handle and stream; return the bytes freed.

    They come from the same allocator as tensors and belong to none. cuBLAS takes new ones at its
    next product.
    """
    import torch

    synchronize(device)
    before = allocated(device).now_bytes
    torch._C._cuda_clearCublasWorkspaces()
    return before - allocated(device).now_bytes
