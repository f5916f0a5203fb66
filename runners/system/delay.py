"""A link with a latency: packets that leave a rank's namespace wait before they go on their way.

In: this rank's place, and a delay. Out: an interface `delayed0` beside the rank's link, through
which the ranks reach each other as through the link, only later. Kernels without a queue that
delays (`netem`) need this: a process beside the rank reads packets from a TUN device, keeps each
for as long as it was told to, and sends it over the link as one datagram; at the other end it is
written into the TUN device there.

The process ends with the rank that started it. Linux and root are needed. No torch.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from runners.system.links import LinkError, address

INTERFACE = "delayed0"
_PORT = 40213
# A packet is as long as a datagram can be: TCP needs a packet less often, and Python is slow.
_PACKET_BYTES = 60000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_PR_SET_PDEATHSIG = 1
_NETWORK = bytes((10, 214))
_BUFFER_BYTES = 1 << 24


def _delayed_address(rank: int) -> str:
    """The IPv4 address of a rank on the delayed link: as on the switch, in another network."""
    return address(rank).replace("10.213.", "10.214.", 1)


def start(rank: int, seconds: float) -> None:
    """Give this rank a delayed link: each packet that it sends waits so long.

    Raises:
        LinkError: the interface did not come up.
    """
    command = [sys.executable, "-m", "runners.system.delay", str(rank), str(seconds)]
    parent, child = socket.socketpair()
    with parent:
        with child:
            subprocess.Popen([*command, str(child.fileno())], pass_fds=[child.fileno()])
        parent.settimeout(20)
        if not parent.recv(1):
            raise LinkError("a delayed link cannot be made here: it needs a TUN device")


def _device(rank: int) -> int:
    """A TUN device with this rank's address, up; its file descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH", INTERFACE.encode(), _IFF_TUN | _IFF_NO_PI)
    fcntl.ioctl(device, _TUNSETIFF, request.ljust(40, b"\0"))
    lines = [
        f"address add {_delayed_address(rank)}/16 dev {INTERFACE}",
        f"link set {INTERFACE} mtu {_PACKET_BYTES} up",
    ]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
    # After each pause TCP would else begin slowly again, as if the link were unknown.
    Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle").write_text("0")
    return device


def _relay(device: int, link: socket.socket, seconds: float) -> None:
    """Pass packets on, for ever; those of the device wait first."""
    waiting: deque[tuple[float, bytes]] = deque()
    while True:
        due = waiting[0][0] - time.monotonic() if waiting else None
        wait = None if due is None else max(due, 0)
        ready, _, _ = select.select([device, link.fileno()], [], [], wait)
        if device in ready:
            packet = os.read(device, _PACKET_BYTES)
            if packet[16:18] == _NETWORK:  # to a rank; the kernel also asks for routers
                waiting.append((time.monotonic() + seconds, packet))
        if link.fileno() in ready:
            os.write(device, link.recv(_PACKET_BYTES))
        while waiting and waiting[0][0] <= time.monotonic():
            packet = waiting.popleft()[1]
            receiver = socket.inet_ntoa(packet[16:20]).replace("10.214.", "10.213.", 1)
            link.sendto(packet, (receiver, _PORT))


def main(arguments: list[str]) -> None:
    """Be the process beside the rank: `RANK SECONDS FILE`, where FILE hears that it is ready."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    rank, seconds, parent = int(arguments[0]), float(arguments[1]), int(arguments[2])
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        link.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    link.bind((address(rank), _PORT))
    device = _device(rank)
    os.write(parent, b"r")
    os.close(parent)
    _relay(device, link, seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
