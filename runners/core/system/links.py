"""Links of a known rate between ranks: a network namespace a rank, one veth each to a switch.

In: how many ranks, and how many bits a second their links let through. Out: the names of the
namespaces, in the order of the ranks, for as long as `linked` is entered:

    rank 0 [link0]──veth──[port0]┐
    rank 1 [link0]──veth──[port1]┤ bridge, in a namespace of its own
    rank 2 [link0]──veth──[port2]┘

A token bucket shapes both ends of each veth, so a rank sends and receives at that rate. Interfaces
are made inside the namespaces and never on the host. A namespace's name carries the launcher's
process id and start: what a dead launcher left is swept before the next is made. Linux, root, `ip`
and `tc` are needed; `cannot_link` says what is missing. No torch.
"""

import ctypes
import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path

from proofbook.runners.core.system import processes
from proofbook.runners.system import stopping
from proofbook.runners.system.errors import LaunchError

INTERFACE = "link0"  # of every rank, in its own namespace
NAMES = Path("/run/netns")  # where `ip netns` keeps the names of namespaces
_OURS = re.compile(r"proofbook-(\d+)-(\d+)-\d+-(?:switch|\d+)")
_CLONE_NEWNET = 0x40000000
# A rank passes on some frames at once, as a batch: a timer for each would keep a core busy, and a
# whole transfer at once would not be shaped at all.
BATCH_BYTES = 16384
# A bucket holds a batch, or what passes in half a millisecond: little beside any transfer.
BURST_SECONDS = 0.0005
MIN_BURST_BYTES = 20000
# What waits at a link is never dropped: a transfer is then as long as its bytes, and no byte is
# sent again.
QUEUE_BYTES = 1 << 28
_numbers = count()


class LinkError(LaunchError):
    """The kernel, or a missing right or program, does not let us make links."""


def address(rank: int) -> str:
    """The IPv4 address of a rank on the switch."""
    return f"10.213.{rank // 250}.{rank % 250 + 1}"


def _call(*arguments: str, lines: list[str] | None = None) -> None:
    """Run `ip` or `tc`, with several commands on standard input; LinkError says what it said."""
    with stopping.held():  # no half-made link
        done = subprocess.run(
            arguments,
            input="\n".join(lines) + "\n" if lines else None,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,  # Ctrl-C is ours to handle
        )
    if done.returncode:
        lines = [*(done.stderr or done.stdout).strip().splitlines(), "failed"]
        raise LinkError(f"`{arguments[0]}` cannot make links here: {lines[0]}")


def _names() -> list[str]:
    return [path.name for path in NAMES.iterdir()] if NAMES.is_dir() else []


def _remove(names: list[str]) -> None:
    """Remove namespaces; one that is gone already is no mistake."""
    for name in names:
        with suppress(LinkError):
            _call("ip", "netns", "delete", name)


def sweep() -> None:
    """Remove the namespaces of launchers that are dead."""
    owned = [(n, m) for n in _names() if (m := _OURS.fullmatch(n))]
    _remove([n for n, m in owned if not processes.lives(int(m.group(1)), int(m.group(2)))])


def _shaping(interface: str, bits_per_second: int) -> str:
    burst = max(MIN_BURST_BYTES, round(bits_per_second / 8 * BURST_SECONDS))
    return (
        f"qdisc add dev {interface} root tbf rate {bits_per_second}bit "
        f"burst {burst}b limit {QUEUE_BYTES}"
    )


def _make(switch: str, ranks: list[str], bits_per_second: int | None) -> None:
    _call("ip", "-batch", "-", lines=[f"netns add {name}" for name in (switch, *ranks)])
    ports = [f"port{rank}" for rank in range(len(ranks))]
    # Without IPv6 and multicast nothing travels but what ranks send, and address resolution.
    _call(
        *("ip", "-n", switch, "-batch", "-"),
        lines=[
            "link add bridge type bridge mcast_snooping 0",
            "link set bridge addrgenmode none up",
            *(
                f"link add {port} type veth peer name {INTERFACE} netns {name}"
                for port, name in zip(ports, ranks, strict=True)
            ),
            *(f"link set {port} addrgenmode none master bridge up" for port in ports),
        ],
    )
    for rank, name in enumerate(ranks):
        _call(
            *("ip", "-n", name, "-batch", "-"),
            lines=[
                "link set lo up",
                f"link set {INTERFACE} addrgenmode none multicast off gso_max_size {BATCH_BYTES}",
                f"address add {address(rank)}/16 dev {INTERFACE}",
                f"link set {INTERFACE} up",
            ],
        )
    if bits_per_second is not None:
        shaped = [_shaping(port, bits_per_second) for port in ports]
        _call("tc", "-n", switch, "-batch", "-", lines=shaped)
        for name in ranks:
            _call("tc", "-n", name, *_shaping(INTERFACE, bits_per_second).split())
    _keep_order(switch, ranks)


def _keep_order(switch: str, ranks: list[str]) -> None:
    """Let one core receive all frames of an interface.

    A shaped link sends from whichever core its timer fires on, and what two cores hand on may
    arrive in another order: TCP then takes frames for lost, sends them again, and slows down. Where
    the kernel refuses, links work, only less evenly.
    """
    cores = sorted(os.sched_getaffinity(0))
    arrivals = [(switch, f"port{rank}") for rank in range(len(ranks))]
    arrivals += [(name, INTERFACE) for name in ranks]
    for index, (namespace, interface) in enumerate(arrivals):
        mask = f"{1 << cores[index % len(cores)]:x}"
        command = f"echo {mask} > /sys/class/net/{interface}/queues/rx-0/rps_cpus"
        with suppress(LinkError):
            _call("ip", "netns", "exec", namespace, "sh", "-c", command)


@contextmanager
def linked(num_ranks: int, bits_per_second: int | None = None) -> Iterator[list[str]]:
    """A context with a namespace for each rank, whose names it yields, and one for the switch.

    Each link is shaped to `bits_per_second` in each direction, or not at all. All are removed at
    the end. LinkError where they cannot be made here.
    """
    sweep()
    pid = os.getpid()
    start = f"proofbook-{pid}-{processes.start_ticks(pid) or 0}-{next(_numbers)}"
    switch, ranks = f"{start}-switch", [f"{start}-{rank}" for rank in range(num_ranks)]
    try:
        _make(switch, ranks, bits_per_second)
        yield ranks
    finally:
        _remove([name for name in _names() if name in {switch, *ranks}])


@cache
def cannot_link() -> str | None:
    """Why this machine cannot give ranks links of their own, by making one; None where it can.

    It is tried once: whether the kernel lets us is not written anywhere.
    """
    if not (shutil.which("ip") and shutil.which("tc") and os.geteuid() == 0):
        return "ranks with links of their own need root, and Linux's `ip` and `tc`"
    try:
        with linked(1, 10**9):
            return None
    except LinkError as error:
        return str(error)


def interface_of(wanted: str) -> str | None:
    """The name of this machine's interface with this IPv4 address; None where there is none."""
    get_address = 0x8915  # SIOCGIFADDR, Linux
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an IPv4 address
                answer = fcntl.ioctl(any_socket, get_address, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(answer[20:24]) == wanted:
                    return name
    return None


def shape(bits_per_second: int, within_bits_per_second: int, mates: list[str]) -> None:
    """Give this rank's unshaped link a rate to other nodes, and one to `mates`, on its own node."""
    rates = {1: within_bits_per_second, 2: bits_per_second}
    _call(
        *("tc", "-batch", "-"),
        lines=[
            f"qdisc add dev {INTERFACE} root handle 1: htb default 2",
            *(
                f"class add dev {INTERFACE} parent 1: classid 1:{number} htb rate {rate}bit "
                f"burst {MIN_BURST_BYTES}b cburst {MIN_BURST_BYTES}b"
                for number, rate in rates.items()
            ),
            *(
                f"filter add dev {INTERFACE} parent 1: protocol ip "
                f"u32 match ip dst {mate} flowid 1:1"
                for mate in mates
            ),
        ],
    )


def enter(namespace: str) -> None:
    """Move this process, which has one thread so far, into a namespace, and gloo onto its link."""
    with (NAMES / namespace).open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), namespace)
    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
