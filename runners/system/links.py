"""Links of a known rate between ranks: a network namespace a rank, one veth each to a switch.

In: how many ranks, and how many bits a second their links let through. Out: the kernel's files of
the namespaces, in the order of the ranks, for as long as `linked` is entered:

    rank 0 [link0]──veth──[port0]┐
    rank 1 [link0]──veth──[port1]┤ bridge, in a namespace of its own
    rank 2 [link0]──veth──[port2]┘

A token bucket shapes both ends of each veth, so a rank sends and receives at that rate. Interfaces
are made inside the namespaces and never on the host. A namespace has no name: it lives as long as a
process in it, of which the launcher holds one, so that nothing is left however a launcher ends.
Linux, root, `ip`, `tc` and util-linux are needed; `cannot_link` says what is missing. No torch.
"""

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from runners.system.errors import LaunchError

INTERFACE = "link0"  # of every rank, in its own namespace
# Holds a namespace until its standard input ends, as it does with the launcher.
_HOLDER = "mount -t sysfs sysfs /sys && echo ready && exec cat"
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


class LinkError(LaunchError):
    """The kernel, or a missing right or program, does not let us make links."""


def address(rank: int) -> str:
    """The IPv4 address of a rank on the switch."""
    return f"10.213.{rank // 250}.{rank % 250 + 1}"


def _call(holder: int, *arguments: str, lines: list[str] | None = None) -> None:
    """Run a program in a namespace, with commands on standard input where there are several.

    Raises:
        LinkError: with what it said.
    """
    done = subprocess.run(
        ["nsenter", "--target", str(holder), "--net", "--mount", *arguments],
        input="\n".join(lines) + "\n" if lines else None,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # Ctrl-C is ours to handle
    )
    if done.returncode:
        raise _refused(arguments[0], done.stderr or done.stdout)


def _refused(program: str, said: str) -> LinkError:
    first = (said.strip() or "failed").splitlines()[0]
    return LinkError(f"`{program}` cannot make links here: {first}")


@contextmanager
def _namespace() -> Iterator[int]:
    """A network namespace, by the process that holds it."""
    with subprocess.Popen(
        ["unshare", "--net", "--mount", "sh", "-c", _HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as holder:
        said = holder.stdout.readline() if holder.stdout else ""
        if said != "ready\n":
            raise _refused("unshare", said)
        yield holder.pid


def _shaping(interface: str, bits_per_second: int) -> str:
    burst = max(MIN_BURST_BYTES, round(bits_per_second / 8 * BURST_SECONDS))
    return (
        f"qdisc add dev {interface} root tbf rate {bits_per_second}bit "
        f"burst {burst}b limit {QUEUE_BYTES}"
    )


def _make(switch: int, ranks: list[int], bits_per_second: int | None) -> None:
    ports = [f"port{rank}" for rank in range(len(ranks))]
    # Without IPv6 and multicast nothing travels but what ranks send, and address resolution.
    _call(
        *(switch, "ip", "-batch", "-"),
        lines=[
            "link add bridge type bridge mcast_snooping 0",
            "link set bridge addrgenmode none up",
            *(
                f"link add {port} type veth peer name {INTERFACE} netns {holder}"
                for port, holder in zip(ports, ranks, strict=True)
            ),
            *(f"link set {port} addrgenmode none master bridge up" for port in ports),
        ],
    )
    for rank, holder in enumerate(ranks):
        _call(
            *(holder, "ip", "-batch", "-"),
            lines=[
                "link set lo up",
                f"link set {INTERFACE} addrgenmode none multicast off gso_max_size {BATCH_BYTES}",
                f"address add {address(rank)}/16 dev {INTERFACE}",
                f"link set {INTERFACE} up",
            ],
        )
    ends = [*((switch, port) for port in ports), *((holder, INTERFACE) for holder in ranks)]
    cores = sorted(os.sched_getaffinity(0))
    for index, (holder, interface) in enumerate(ends):
        if bits_per_second is not None:
            _call(holder, "tc", *_shaping(interface, bits_per_second).split())
        # One core takes what arrives. A shaped link sends from whichever core its timer fires on,
        # and what two cores hand on may arrive in another order: TCP then takes frames for lost,
        # sends them again, and slows down. Where the kernel cannot be told, links work less evenly.
        mask = f"{1 << cores[index % len(cores)]:x}"
        with suppress(LinkError):
            queue = f"/sys/class/net/{interface}/queues/rx-0/rps_cpus"
            _call(holder, "sh", "-c", f"echo {mask} > {queue}")


@contextmanager
def linked(num_ranks: int, bits_per_second: int | None = None) -> Iterator[list[str]]:
    """Make the namespaces of some ranks, which end with the block.

    Args:
        num_ranks: one namespace each, and one more for the switch.
        bits_per_second: what each link lets through, in each direction; None: all it can.

    Yields:
        The namespaces' files, in the order of the ranks.

    Raises:
        LinkError: they cannot be made here.
    """
    with ExitStack() as held:
        switch, *ranks = (held.enter_context(_namespace()) for _ in range(num_ranks + 1))
        _make(switch, ranks, bits_per_second)
        yield [f"/proc/{holder}/ns/net" for holder in ranks]


@cache
def cannot_link() -> str | None:
    """Why this machine cannot give ranks links of their own; None where it can.

    It is tried, once: whether the kernel lets us is not written anywhere.
    """
    programs = "ip", "tc", "unshare", "nsenter"
    if not (all(map(shutil.which, programs)) and os.geteuid() == 0):
        return "links of their own for ranks take root, `ip` and `tc` of Linux, and util-linux"
    try:
        with linked(1, 10**9):
            return None
    except LinkError as error:
        return str(error)


def interface_of(wanted: str) -> str | None:
    """The name of this machine's interface with an IPv4 address; None where there is none."""
    get_address = 0x8915  # SIOCGIFADDR, Linux
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an IPv4 address
                told = fcntl.ioctl(any_socket, get_address, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(told[20:24]) == wanted:
                    return name
    return None


def shape(bits_per_second: int, within_bits_per_second: int, mates: list[str]) -> None:
    """Let this rank's link carry what goes to its own node faster than what leaves it.

    Called in the rank's namespace, on a link that nothing shapes yet.

    Args:
        bits_per_second: to ranks of other nodes.
        within_bits_per_second: to ranks of its own.
        mates: the addresses of these.

    Raises:
        LinkError: the kernel refuses.
    """
    rates = {1: within_bits_per_second, 2: bits_per_second}
    _call(
        *(os.getpid(), "tc", "-batch", "-"),
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
    """Move this process, which has one thread so far, into a namespace, and gloo onto its link.

    Raises:
        OSError: the namespace is gone, or the kernel refuses.
    """
    with Path(namespace).open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), namespace)
    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
