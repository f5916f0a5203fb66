"""A link with a latency: packets that leave a rank's namespace wait before they go on their way.

In: this rank's place, and a delay. Out: an interface `delayed0` beside the rank's link, through
which the ranks reach each other as through the link, only later; `relay.py` is the process that
keeps the packets. Linux and root are needed.
"""

import socket
import subprocess
import sys

from proofbook.runners.training import relay
from proofbook.runners.training.rank import LinkError, address

INTERFACE = relay.INTERFACE


def start(rank: int, seconds: float) -> None:
    """Start a process that delays what this rank sends by `seconds`; LinkError where it cannot."""
    command = [sys.executable, "-m", relay.__name__, address(rank), str(seconds)]
    rank_end, relay_end = socket.socketpair()
    with relay_end:
        subprocess.Popen([*command, str(relay_end.fileno())], pass_fds=[relay_end.fileno()])
    rank_end.settimeout(20)
    if not rank_end.recv(1):
        raise LinkError("a delayed link cannot be made here: it needs a TUN device")
    rank_end.detach()  # the kernel closes it when this process ends, however that comes about
