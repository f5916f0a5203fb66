"""Files by which the ranks of one launch tell each other what they recorded.

In: objects that torch can save. Out: the same objects on the other ranks, on one host. No process
group takes part, so a script that hangs, fails or destroys its groups loses nothing.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from runners.system import processes

POLL_SECONDS = 0.02
PREFIX = "proofbook-verify"


class GoneError(RuntimeError):
    """A rank ended without a word."""


class Board:
    """The folder of this launch, which all its ranks find: named by the process that started them.

    Args:
        rank: of this process.
        world_size: the number of ranks.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        launcher, of = os.getppid(), os.environ.get
        start = processes.start_ticks(launcher)
        launch = f"{of('MASTER_PORT', '0')}-{of('TORCHELASTIC_RESTART_COUNT', '0')}"
        name = f"{PREFIX}-{os.getuid()}-{launcher}-{start}-{launch}"
        self.folder = Path(tempfile.gettempdir()) / name
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.post("process", (os.getpid(), processes.start_ticks(os.getpid())))

    def post(self, name: str, what: Any) -> None:
        """Write a file, which appears whole."""
        path = self._path(name, self.rank)
        torch.save(what, path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)

    def read(self, name: str, rank: int) -> Any:
        """What a rank has posted; None where it has not."""
        with suppress(FileNotFoundError):  # also where the last rank removes the folder meanwhile
            return torch.load(self._path(name, rank), weights_only=False, mmap=False)
        return None

    def has(self, name: str, rank: int) -> bool:
        """Whether a rank has posted this."""
        return self._path(name, rank).exists()

    def first(self, name: str) -> Any:
        """What the first of the ranks that have posted this has; None where none has."""
        found = (self.read(name, rank) for rank in range(self.world_size))
        return next((one for one in found if one is not None), None)

    def gather(self, name: str) -> dict[int, Any]:
        """Wait until all ranks have posted.

        Raises:
            GoneError: a rank has ended without it.
        """
        while missing := [r for r in range(self.world_size) if not self.has(name, r)]:
            for rank in missing:
                if not self.lives(rank) and not self.has(name, rank):
                    raise GoneError(f"rank {rank} ended without a word (was it killed?)")
            time.sleep(POLL_SECONDS)
        return {rank: self.read(name, rank) for rank in range(self.world_size)}

    def lives(self, rank: int) -> bool:
        """Whether the process of a rank runs; one that has not begun yet does."""
        process = self.read("process", rank)
        return process is None or process[1] is None or processes.lives(*process)

    def remove(self) -> None:
        """Remove the folder, when no other rank needs it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, name: str, rank: int) -> Path:
        return self.folder / f"{name}.{rank}.pt"


def environment(rank: int, world_size: int, port: int) -> dict[str, str]:
    """What torchrun tells a rank where all ranks run on one host."""
    numbers = {
        "RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank, "GROUP_RANK": 0,
        "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size, "MASTER_PORT": port,
    }  # fmt: skip
    return {"MASTER_ADDR": "127.0.0.1"} | {name: str(one) for name, one in numbers.items()}


def free_port() -> int:
    """A port of this host on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def sweep() -> None:
    """Remove the folders of launches that were killed, and of this process where it launched."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}-{os.getuid()}-*"):
        with suppress(ValueError, OSError):
            pid, start = folder.name.split("-")[3:5]
            is_over = int(pid) == os.getpid() or not processes.lives(int(pid), int(start))
            if start != "None" and is_over:
                shutil.rmtree(folder, ignore_errors=True)
