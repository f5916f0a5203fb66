"""Files by which the ranks of one launch tell each other what they recorded, and where they wait.

In: objects that torch can save. Out: the same objects on the other ranks, on one host. No process
group takes part, so a script that hangs, fails or destroys its groups loses nothing. A `Lookout`
on each rank posts where its main thread waits; where all ranks wait, the script hangs.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from runners.system import processes
from runners.verify.internals import place, recorded_collectives

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


POLL_SECONDS = 0.25
IDLE_SECONDS, IDLE_SHARE = 0.02, 0.05  # of a processor; threads that wait wake up now and then
RECORDED = ("TORCH_FR_BUFFER_SIZE", "2000")  # in the environment: torch records collectives
_WAITS = ("torch/distributed", "torch/nn/parallel", "torch/autograd/graph.py", "torch/_ops.py")


class Lookout(threading.Thread):
    """Posts where this rank waits, and calls `hung` on rank 0 where all ranks wait.

    Args:
        board: for the posts.
        patience: seconds without processor time on any rank after which a script hangs.
        hung: called once, with a line for each rank.
    """

    def __init__(self, board: Board, patience: float, hung: Callable[[list[str]], None]) -> None:
        super().__init__(daemon=True)
        self._board, self._patience, self._hung = board, patience, hung
        self._main = threading.main_thread().ident or 0
        self._quiet_since = time.monotonic()
        self._used = 0.0  # seconds of a processor
        self._is_waiting = False
        self._over = threading.Event()

    def stop(self) -> None:
        """The script has ended on this rank, and waits no longer."""
        self._over.set()

    def run(self) -> None:
        """Look until the script has ended."""
        while not self._over.wait(POLL_SECONDS):
            self._look()
            if self._board.rank == self._speaker() and self._is_waiting and self._all_wait():
                self._hung([self._line(rank) for rank in range(self._board.world_size)])
                return

    def _speaker(self) -> int:
        """The first rank whose script has not ended."""
        ranks = range(self._board.world_size)
        return next((r for r in ranks if not self._board.has("seen", r)), 0)

    def _look(self) -> None:
        now, used = time.monotonic(), time.process_time() + _queued_seconds()
        if used - self._used > max(IDLE_SECONDS, IDLE_SHARE * (now - self._quiet_since)):
            self._quiet_since, self._used = now, used
        is_quiet = now - self._quiet_since > self._patience
        if is_quiet != self._is_waiting:
            self._is_waiting = is_quiet
            self._board.post("waits", self._where() if is_quiet else None)

    def _where(self) -> tuple[str, bool]:
        frame = sys._current_frames().get(self._main)
        inner = [one for one, _ in traceback.walk_stack(frame)][:8] if frame else []
        files = [one.f_code.co_filename for one in inner]
        is_in_collective = any(part in file for file in files for part in _WAITS)
        at, call = place(frame), _call(frame) or (inner[0].f_code.co_name if inner else "?")
        return f"{at} in {call}{_last_collective()}", is_in_collective

    def _all_wait(self) -> bool:
        found = []
        for rank in range(self._board.world_size):
            if self._board.has("seen", rank) or not self._board.lives(rank):
                continue
            waits = self._board.read("waits", rank)
            if waits is None:
                return False
            found.append(waits[1])
        return any(found)

    def _line(self, rank: int) -> str:
        """Where a rank is, or why it never came."""
        if (seen := self._board.read("seen", rank)) is not None:
            at = f" at {seen.ended_at}" if seen.ended_at else ""
            return f"rank {rank} never came: {seen.ended or 'its script has ended'}{at}"
        if not self._board.lives(rank):
            return f"rank {rank} never came: its process was killed"
        where, is_in_collective = self._board.read("waits", rank) or ("?", False)
        return f"rank {rank} {'waits' if is_in_collective else 'is elsewhere'}: {where}"


def _last_collective() -> str:
    """The newest entry of torch's flight recorder."""
    entries = recorded_collectives()
    if not entries:
        return ""
    one = entries[-1]
    sizes = [str(size) for size in one["input_sizes"] if size][:1]
    name = str(one["profiling_name"]).removeprefix("gloo:")
    return f" (collective {one['collective_seq_id']} is {name}{' of ' + sizes[0] if sizes else ''})"


def _queued_seconds() -> float:
    """How long the main thread has waited for a processor, which on a busy machine is no hang."""
    with suppress(OSError, IndexError):
        return int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) * 1e-9
    return 0.0


def _call(frame: FrameType | None) -> str:
    """The function of torch.distributed, or the backward pass, in which a rank is."""
    name = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if "torch/distributed" in file and frame.f_code.co_name not in ("wrapper", "wait"):
            name = frame.f_code.co_name
        elif file.endswith("torch/autograd/graph.py"):
            return "backward"
        elif name:
            return name
        frame = frame.f_back
    return name
