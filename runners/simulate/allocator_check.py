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
from typing import NamedTuple

from runners.simulate.allocation_replay import Allocate, Event, Free, replay
from runners.simulate.memory_blocks import MIB

NUM_EVENTS = 2000
SIZES = (700, 40_000, MIB, 3 * MIB // 2, 9 * MIB, 12 * MIB, 33 * MIB, 70 * MIB)  # at most
MOST_LIVE = 40
NO_DEVICE = 3  # exit code


class AllocatorCheck(NamedTuple):
    """Peaks of one sequence of allocations and frees: allocated and reserved bytes.

    Attributes:
        device: as the device counted them.
        model: as the replay gives them.
    """

    device: tuple[int, int]
    model: tuple[int, int]

    @property
    def agrees(self) -> bool:
        """Whether the replay gives what the device counted, to the byte."""
        return self.device == self.model

    def line(self) -> str:
        """As `run` says it."""
        return (
            f"the allocator's replay {'agrees' if self.agrees else 'DIFFERS'}: reserved "
            f"{self.model[1]} bytes, the device {self.device[1]}; allocated {self.model[0]}, the "
            f"device {self.device[0]}"
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
    counted, modelled = torch.cuda.memory_stats(device), replay(given)
    return AllocatorCheck(
        (counted["allocated_bytes.all.peak"], counted["reserved_bytes.all.peak"]),
        (modelled.peak_allocated_bytes, modelled.peak_reserved_bytes),
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
    return AllocatorCheck(*map(tuple, json.loads(done.stdout)))


if __name__ == "__main__":
    import torch

    if not torch.cuda.is_available():
        sys.exit(NO_DEVICE)
    sys.stdout.write(json.dumps(check()))
