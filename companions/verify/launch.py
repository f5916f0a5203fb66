"""What a launch on this host needs before torch is loaded: a port, variables, and a swept folder.

In: nothing. Out: the environment of each rank. The folder of a launch is named `verify-PID-START-…`
by the process that starts its ranks.
"""

from __future__ import annotations

import os
import shutil
import socket
from contextlib import suppress

from proofbook.runners.core.system import processes
from proofbook.runners.system.private import temporary

PREFIX = "verify-"


def environment(rank: int, world_size: int, port: int) -> dict[str, str]:
    """Torchrun's variables by name, as text, for a rank of a launch on one host."""
    numbers = {
        "RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank, "GROUP_RANK": 0,
        "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size, "MASTER_PORT": port,
    }  # fmt: skip
    return {"MASTER_ADDR": "127.0.0.1"} | {name: str(value) for name, value in numbers.items()}


def free_port() -> int:
    """A port of this host on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def sweep() -> None:
    """Remove the folders of launches that were killed, and of this process where it launched."""
    parent = temporary()
    for name in os.listdir(parent.descriptor):  # noqa: PTH208 by its descriptor
        with suppress(ValueError):
            pid, start = map(int, name.removeprefix(PREFIX).split("-")[:2])
            if pid == os.getpid() or not processes.lives(pid, start):
                shutil.rmtree(name, ignore_errors=True, dir_fd=parent.descriptor)
