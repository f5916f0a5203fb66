"""How far each rank's clock is from that of rank 0, measured by messages to and fro.

In: the process group. Out: on rank 0, a `RankClock` for each rank. Ranks of one machine share a
clock, so that their offsets lie within their errors; ranks of several nodes do not.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from runners.traces.measured import RankClock

NUM_ROUNDS = 8  # the one with the shortest round trip is kept: nothing delayed it


def compared_clocks(rank: int, world_size: int, device: torch.device) -> list[RankClock]:
    """Compare the clocks of all ranks with that of rank 0; every rank calls it together.

    Args:
        rank: this one.
        world_size: how many there are.
        device: of this rank; NCCL carries messages between accelerators only.

    Returns:
        One clock a rank on rank 0; none on the others.
    """
    where = device if dist.get_backend() == "nccl" else torch.device("cpu")
    # Nanoseconds since 1970 need 61 bits: int64 holds them whole.
    stamps = torch.zeros(2, dtype=torch.int64, device=where)
    if rank:
        for _ in range(NUM_ROUNDS):
            _answer(stamps)
        return []
    clocks = [RankClock(rank=0, offset_seconds=0.0, error_seconds=0.0)]
    for peer in range(1, world_size):
        rounds = [_ask(stamps, peer) for _ in range(NUM_ROUNDS)]
        error, offset = min(rounds)
        clocks.append(RankClock(rank=peer, offset_seconds=offset, error_seconds=error))
    return clocks


def _ask(stamps: torch.Tensor, peer: int) -> tuple[float, float]:
    """One round trip from rank 0: the bound of the error, and the peer's offset, in seconds."""
    sent = time.time_ns()
    dist.send(stamps, peer)
    dist.recv(stamps, peer)
    received, answered = stamps.tolist()  # waits for the device, too
    return of_round_trip(sent, received, answered, time.time_ns())


def _answer(stamps: torch.Tensor) -> None:
    """The other side of one round trip."""
    dist.recv(stamps, 0)
    stamps.tolist()  # NCCL returns before the message is there
    received = time.time_ns()
    answer = torch.tensor([received, time.time_ns()], dtype=torch.int64, device=stamps.device)
    dist.send(answer, 0)


def of_round_trip(sent: int, received: int, answered: int, back: int) -> tuple[float, float]:
    """The bound of the error and the peer's offset, in seconds, from four times in nanoseconds.

    The way there and the way back may differ. The offset takes them as equal, and is wrong by half
    of their difference: at most half of the round trip.

    Args:
        sent: by rank 0, on its clock.
        received: by the peer, on the peer's clock.
        answered: by the peer, on the peer's clock.
        back: at rank 0, on its clock.
    """
    offset = ((received - sent) + (answered - back)) / 2
    error = ((back - sent) - (answered - received)) / 2
    return round(error / 1e9, 9), round(offset / 1e9, 9)
