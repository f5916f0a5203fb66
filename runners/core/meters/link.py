"""What a rank sent by its own link, by the kernel's counters of its interface. No torch.

In: `/proc/self/net/dev` of the namespace that the rank lives in. Out: bytes of payload so far; two
counts differ by what was sent in between.

`LinkMeter` counts on all ranks of a pass at one moment in which nothing is under way. A barrier
would bring them to such a moment, and its own bytes into the count; these ranks share a machine, so
they meet through files instead, which no link carries.

The counters see frames: a payload and its headers. A frame's headers are of one size once a
connection stands, so the payload follows from bytes and frames, exactly, acknowledgements (frames
without payload) included. Frames that the kernel hands on as one, uncut, count as one and have one
set of headers.
"""

import time
from pathlib import Path

from proofbook.runners.core.system.links import INTERFACE

# Ethernet, IPv4, and TCP with its time stamps: what Linux sends in each frame of a connection.
HEADER_BYTES = 14 + 20 + 20 + 12
COUNTERS = Path("/proc/self/net/dev")
LOOK_SECONDS = 0.002
STILL_SECONDS = 0.05  # no frame this long: acknowledgements, which the kernel delays by 40 ms, too


def sent_payload_bytes(counters: Path = COUNTERS) -> int | None:
    """Bytes sent by this process's own link so far, without headers; None where it has none."""
    for line in counters.read_text(encoding="ascii").splitlines() if counters.exists() else ():
        name, _, numbers = line.partition(":")
        if name.strip() == INTERFACE:
            num_bytes, num_frames = map(int, numbers.split()[8:10])
            return num_bytes - HEADER_BYTES * num_frames
    return None


class LinkMeter:
    """Counts one rank's link whenever all ranks of the pass do."""

    def __init__(self, folder: Path, rank: int, world_size: int) -> None:
        self._folder, self._rank, self._world_size = folder, rank, world_size
        self._num_meetings = 0

    def count(self) -> int | None:
        """Bytes of payload that this rank has sent, once all have come and their links are idle.

        Every rank calls it, as often as the others. None where the rank has no link of its own.
        """
        self._meet()  # what ranks sent before has been received by now
        sent, since = sent_payload_bytes(), time.monotonic()
        while sent is not None and time.monotonic() - since < STILL_SECONDS:
            time.sleep(LOOK_SECONDS)
            if (now := sent_payload_bytes()) != sent:
                sent, since = now, time.monotonic()
        self._meet()  # nobody sends on before all have counted
        return sent

    def _meet(self) -> None:
        """Wait until all ranks are here. A rank that hangs or dies is the launcher's to notice."""
        self._num_meetings += 1
        (self._folder / f"link{self._num_meetings}.{self._rank}").touch()
        for rank in range(self._world_size):
            while not (self._folder / f"link{self._num_meetings}.{rank}").exists():
                time.sleep(LOOK_SECONDS)
