"""The process beside a rank whose link has a latency: it passes each packet on, only later.

Kernels without a queue that delays (`netem`) need it: it reads packets from a TUN device, keeps
each for the delay, and sends it over the link as one datagram; at the other end it is written into
the TUN device there. It outlives the rank that started it by what the rank's last packets wait:
another rank may wait for them.

It loads the standard library alone. The rank is idle until the device is there, and one that idles
for some seconds is taken for one that hangs: beside other work, torch takes longer than that.
"""

import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

INTERFACE = "delayed0"
_PORT = 40213
# A packet is as long as a datagram can be: TCP needs a packet less often, and Python is slow.
_PACKET_BYTES = 60000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_NETWORK = bytes((10, 214))
_BUFFER_BYTES = 1 << 24


def _device(own: str) -> int:
    """A TUN device with the address `own`, up; its file descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH", INTERFACE.encode(), _IFF_TUN | _IFF_NO_PI)
    fcntl.ioctl(device, _TUNSETIFF, request.ljust(40, b"\0"))
    lines = [
        f"address add {own}/16 dev {INTERFACE}",
        f"link set {INTERFACE} mtu {_PACKET_BYTES} up",
    ]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
    # After each pause TCP would else begin slowly again, as if the link were unknown.
    Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle").write_text("0")
    return device


def _relay(device: int, link: socket.socket, to_rank: socket.socket, seconds: float) -> None:
    """Pass packets on until the rank and its last ones are gone; those of the device wait first."""
    waiting: deque[tuple[float, bytes]] = deque()
    sources = [device, link.fileno(), to_rank.fileno()]
    while waiting or len(sources) == 3:
        wait = max(waiting[0][0] - time.monotonic(), 0) if waiting else None
        ready, _, _ = select.select(sources, [], [], wait)
        if device in ready:
            packet = os.read(device, _PACKET_BYTES)
            if packet[16:18] == _NETWORK:  # to a rank; the kernel also asks for routers
                waiting.append((time.monotonic() + seconds, packet))
        if link.fileno() in ready:
            os.write(device, link.recv(_PACKET_BYTES))
        if to_rank.fileno() in ready:
            sources.remove(to_rank.fileno())
        while waiting and waiting[0][0] <= time.monotonic():
            packet = waiting.popleft()[1]
            receiver = socket.inet_ntoa(packet[16:20]).replace("10.214.", "10.213.", 1)
            link.sendto(packet, (receiver, _PORT))


def main(arguments: list[str]) -> None:
    """Be the process beside the rank at `ADDRESS`, by `ADDRESS SECONDS SOCKET`."""
    own, seconds = arguments[0], float(arguments[1])
    to_rank = socket.socket(fileno=int(arguments[2]))
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        link.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    link.bind((own, _PORT))
    device = _device(own.replace("10.213.", "10.214.", 1))  # as on the switch, another network
    to_rank.send(b"r")
    _relay(device, link, to_rank, seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
