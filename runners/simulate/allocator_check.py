"""Compare the model of CUDA's caching allocator with the allocator of this machine.

In: an accelerator. Out: what both reserve for the same allocations and frees, of all sizes that the
allocator tells apart. `python -m runners run` does so in a process of its own, where there is an
accelerator: in the launcher torch must not touch one.

python -m runners.simulate.allocator_check
"""

from __future__ import annotations

import json
import random
import subprocess
import sys

from pydantic import Field

from runners.simulate.allocation_replay import Allocate, Event, Free, replay
from runners.simulate.memory_blocks import MIB
from runners.traces.schema import Record

NUM_EVENTS = 2000
SIZES = (700, 40_000, MIB, 3 * MIB // 2, 9 * MIB, 12 * MIB, 33 * MIB, 70 * MIB)  # at most
MOST_LIVE = 40
NO_DEVICE = 3  # exit code


class AllocatorCheck(Record):
    """Peaks of one sequence of allocations and frees."""

    events: int
    device_allocated_bytes: int
    device_reserved_bytes: int
    model_allocated_bytes: int
    model_reserved_bytes: int = Field(description="by the replay")

    @property
    def agrees(self) -> bool:
        """Whether the replay gives what the device counted, to the byte."""
        device = (self.device_allocated_bytes, self.device_reserved_bytes)
        return device == (self.model_allocated_bytes, self.model_reserved_bytes)

    def line(self) -> str:
        """As `run` says it."""
        verdict = "agrees" if self.agrees else "DIFFERS"
        return (
            f"the allocator's replay {verdict}: reserved {self.model_reserved_bytes} bytes, the "
            f"device {self.device_reserved_bytes}; allocated {self.model_allocated_bytes}, the "
            f"device {self.device_allocated_bytes}"
        )


def events(seed: int = 0) -> list[Event]:
    """Allocations and frees in a random order, fewer than `MOST_LIVE` alive at once."""
    chance = random.Random(seed)
    live: list[int] = []
    found: list[Event] = []
    for key in range(NUM_EVENTS):
        if live and (len(live) == MOST_LIVE or chance.random() < 0.45):
            found.append(Free(live.pop(chance.randrange(len(live)))))
        else:
            size = chance.choice(SIZES)
            live.append(key)
            found.append(Allocate(key, chance.randint(size // 2, size)))
    return found


def check() -> AllocatorCheck:
    """Do the same on the device and in the model; a process that has used neither before."""
    import torch

    device = torch.device("cuda", 0)
    held: dict[int, torch.Tensor] = {}
    given = events()
    for event in given:
        if isinstance(event, Allocate):
            held[event.key] = torch.empty(event.num_bytes, dtype=torch.uint8, device=device)
        elif isinstance(event, Free):
            del held[event.key]
    counted = torch.cuda.memory_stats(device)
    modelled = replay(given)
    return AllocatorCheck(
        events=len(given),
        device_allocated_bytes=counted["allocated_bytes.all.peak"],
        device_reserved_bytes=counted["reserved_bytes.all.peak"],
        model_allocated_bytes=modelled.peak_allocated_bytes,
        model_reserved_bytes=modelled.peak_reserved_bytes,
    )


def checked() -> AllocatorCheck | None:
    """The comparison, made in another process; None where that process has no device."""
    done = subprocess.run(
        [sys.executable, "-m", "runners.simulate.allocator_check"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == NO_DEVICE:
        return None
    done.check_returncode()
    return AllocatorCheck.model_validate(json.loads(done.stdout))


if __name__ == "__main__":
    import torch

    if not torch.cuda.is_available():
        sys.exit(NO_DEVICE)
    sys.stdout.write(check().model_dump_json())
