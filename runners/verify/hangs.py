"""Finds that a script hangs: who waits at which line, and who never came and where that rank is.

In: the stack of this rank's main thread, again and again. Out: what each rank posted of where it
waits, once none of them takes processor time any more.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from torch._C import _distributed_c10d as c10d

from runners.verify.exchange import Board
from runners.verify.frames import place

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
    """The newest entry of torch's flight recorder, which has no point-to-point calls."""
    recorded = c10d._dump_fr_trace_json()  # type: ignore[attr-defined] # no stub
    entries = json.loads(recorded).get("entries", [])
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
