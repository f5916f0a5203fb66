"""What passed through a rank's own link, by the kernel's counters of its interface. No torch.

In: `/proc/self/net/dev` of the namespace that the rank lives in. Out: `LinkCount`s, whose
difference is what went through in between.

The counters see frames: a payload and its headers. A frame's headers are of one size once a
connection stands, so the payload follows from bytes and frames, exactly, acknowledgements (frames
without payload) included. Frames that the kernel hands on as one, uncut, count as one and have one
set of headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runners.links import INTERFACE

# Ethernet, IPv4, and TCP with its time stamps: what Linux sends in each frame of a connection.
HEADER_BYTES = 14 + 20 + 20 + 12
COUNTERS = Path("/proc/self/net/dev")


@dataclass(frozen=True)
class LinkCount:
    """Bytes and frames that have passed an interface, headers included."""

    sent_bytes: int
    sent_frames: int
    received_bytes: int
    received_frames: int

    def __sub__(self, earlier: LinkCount) -> LinkCount:
        """What passed since an earlier count."""
        return LinkCount(
            self.sent_bytes - earlier.sent_bytes,
            self.sent_frames - earlier.sent_frames,
            self.received_bytes - earlier.received_bytes,
            self.received_frames - earlier.received_frames,
        )

    @property
    def sent_payload_bytes(self) -> int:
        """Bytes sent without their headers."""
        return self.sent_bytes - HEADER_BYTES * self.sent_frames

    @property
    def received_payload_bytes(self) -> int:
        """Bytes received without their headers."""
        return self.received_bytes - HEADER_BYTES * self.received_frames


def read(text: str) -> LinkCount | None:
    """The count of a rank's interface in the text of `/proc/net/dev`; None without one."""
    for line in text.splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == INTERFACE:
            fields = [int(number) for number in numbers.split()]
            return LinkCount(fields[8], fields[9], fields[0], fields[1])
    return None


def count() -> LinkCount | None:
    """What has passed this process's own link; None where it has none."""
    try:
        return read(COUNTERS.read_text(encoding="ascii"))
    except OSError:
        return None
