"""The board of a launch: files by which its ranks exchange records, and say where they wait.

In: objects that torch can save. Out: the same objects on the other ranks, on one host. No process
group takes part, so a script that hangs, fails or destroys its groups loses nothing. The files lie
in a folder that no other user can enter. Each rank writes what it calls before the call begins. A
`Lookout` on each rank posts where its main thread waits; where all ranks wait, the script hangs,
and where a rank is gone, the first that is left reports it.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch

from proofbook.companions.verify import records
from proofbook.companions.verify.internals import place
from proofbook.companions.verify.launch import PREFIX
from proofbook.companions.verify.replay import Replay
from proofbook.companions.verify.report import Finding, Verdict
from proofbook.runners.core.system import processes
from proofbook.runners.core.system.processes import IdleTime
from proofbook.runners.system.private import PrivateFolder, temporary

GATHER_SECONDS = 0.02
# Besides tensors and plain values, what a record may hold.
_CLASSES: list[Any] = [
    records.Clip, records.Forward, records.LocalPart, records.Loss, records.RankRecording,
    records.Resumed, records.RootRecord, records.ScriptFailure, records.Spec,
    records.UpdateRecord, Replay,
]  # fmt: skip
_PICKLED = ("batches", "inputs")  # which hold objects of the script's own classes
_SLOTS, _SLOT_BYTES = 16, 512  # of the newest calls


class AnnouncedCall(NamedTuple):
    """A call of a collective, or of a function that calls some, written before it begins."""

    order: int  # of this rank's calls
    group: str  # the name of the process group; empty where the call has no partner on each rank
    number: int  # of the calls in this group, of which all its ranks make the same
    kind: str  # the function's name
    size: int  # elements of the tensor that all ranks have alike
    place: str  # the script's line

    def __str__(self) -> str:
        return f"{self.kind}{f' of {self.size} elements' * bool(self.size)} ({self.place})"


class Board:
    """The folder of a launch, named by the process that starts the ranks (`rank` None there)."""

    def __init__(self, rank: int | None, world_size: int, port: int | str) -> None:
        self.rank, self.ranks = rank or 0, range(world_size)
        launcher = os.getpid() if rank is None else os.getppid()
        start = processes.start_ticks(launcher)
        launch = f"{port}-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        self._parent = temporary()
        name = f"{PREFIX}{launcher}-{start}-{launch}"
        self.folder = PrivateFolder(self._parent.path / name, self._parent)
        self._numbers = Counter[str]()  # of calls, by their group
        if rank is not None:
            self.post("process", (os.getpid(), processes.start_ticks(os.getpid())))
            with self.folder.open(f"calls.{rank}", "wb") as file:
                self._calls = os.dup(file.fileno())

    def post(self, name: str, value: Any) -> None:
        """Write a file, which appears whole."""
        name = f"{name}.{self.rank}"
        with self.folder.open(f"{name}.part", "wb") as file:
            torch.save(value, file)
        at = self.folder.descriptor
        os.replace(f"{name}.part", name, src_dir_fd=at, dst_dir_fd=at)

    def read(self, name: str, rank: int) -> Any:
        """An object that a rank has posted; None where it has not."""
        torch.serialization.add_safe_globals(_CLASSES)  # again: a script may clear the list
        # Also where the last rank removes the folder meanwhile.
        with suppress(FileNotFoundError), self.folder.open(f"{name}.{rank}") as file:
            return torch.load(file, weights_only=name not in _PICKLED, mmap=False)
        return None

    def has(self, name: str, rank: int) -> bool:
        """Whether a rank has posted under a name."""
        return os.access(f"{name}.{rank}", os.F_OK, dir_fd=self.folder.descriptor)

    def first(self, name: str) -> Any:
        """The object posted by the lowest rank that has; None where none has."""
        posted = (self.read(name, rank) for rank in self.ranks)
        return next((value for value in posted if value is not None), None)

    def gather(self, name: str) -> dict[int, Any]:
        """Wait until all ranks have posted; the `Lookout` ends this where one is gone."""
        while not all(self.has(name, rank) for rank in self.ranks):
            time.sleep(GATHER_SECONDS)
        return {rank: self.read(name, rank) for rank in self.ranks}

    def write_call(self, kind: str, group: str, size: int, place: str) -> None:
        """Write a collective, before its call, to a ring file of the newest calls of this rank."""
        order = self._numbers.total()
        self._numbers[group] += 1
        call = AnnouncedCall(order, group, self._numbers[group], kind, size, place)
        text = json.dumps(call).encode()
        os.pwrite(self._calls, text.ljust(_SLOT_BYTES), order % _SLOTS * _SLOT_BYTES)

    def calls(self, rank: int) -> list[AnnouncedCall]:
        """A rank's newest `AnnouncedCall`s, read from its file, in order; [] without a file."""
        calls = []
        with suppress(FileNotFoundError), self.folder.open(f"calls.{rank}") as file:
            held = file.read()
            for at in range(0, len(held), _SLOT_BYTES):
                with suppress(ValueError, TypeError):  # an empty slot
                    slot = held[at : at + _SLOT_BYTES].strip(b"\0")
                    calls.append(AnnouncedCall(*json.loads(slot)))
        return sorted(calls)

    def lives(self, rank: int) -> bool:
        """Whether the process of a rank runs; one that has not begun yet does."""
        pid, start = self.read("process", rank) or (0, None)
        return start is None or processes.lives(pid, start)

    @property
    def gone(self) -> list[int]:
        """The ranks whose processes ended without a word."""
        return [rank for rank in self.ranks if not self.lives(rank) and not self.has("gone", rank)]

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder.path.name, ignore_errors=True, dir_fd=self._parent.descriptor)


POLL_SECONDS = 0.25
_WAITS = ("torch/distributed", "torch/nn/parallel", "torch/autograd/graph.py", "torch/_ops.py")


class Lookout(threading.Thread):
    """Posts where this rank waits; on one rank, reports that all ranks wait, or that one is gone.

    A script hangs when all ranks are idle for `patience` seconds. `says` is called once, with the
    report; `stops` with the place where this rank waits for ranks that were stopped by us; `leaves`
    ends this process with an exit code.
    """

    def __init__(
        self, board: Board, patience: float, says: Callable[[Verdict], None],
        stops: Callable[[str], None], leaves: Callable[[int], None],
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self._board, self._patience, self._says, self._leaves = board, patience, says, leaves
        self._stops = stops
        self._main = threading.main_thread().ident or 0
        self._is_waiting = False
        # torchrun ends the ranks that are left with SIGTERM, and they have something to say first.
        # The main thread may wait in a collective, where no handler of Python runs.
        self._signals, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.signal(signal.SIGTERM, _ignore)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=_forget)

    def run(self) -> None:
        """Poll until this process ends: post whether it waits, report a hang or a rank gone."""
        self._idle_time = IdleTime(os.getpid(), observer=threading.get_native_id())
        while True:
            has_signals = select.select([self._signals], [], [], POLL_SECONDS)[0]
            is_told = has_signals and signal.SIGTERM in os.read(self._signals, _SLOT_BYTES)
            running = [r for r in self._board.ranks if not self._board.has("seen", r)]
            if self._board.rank in running:
                self._post_whether_it_waits()
            self._report(running, bool(is_told) and signal.getsignal(signal.SIGTERM) is _ignore)

    def _report(self, running: Sequence[int], is_told: bool) -> None:
        """Report what this rank is the first to know, or end with the rank that has reported."""
        board = self._board
        if (code := board.first("code")) is not None:
            self._leaves(code)
        if is_told:
            board.post("told", True)
        if (gone := board.gone) or is_told:
            if board.rank == next(rank for rank in board.ranks if board.lives(rank)):
                self._says(ended(board, dict.fromkeys(gone, "")))
            elif is_told:
                os._exit(128 + signal.SIGTERM)
        elif self._is_waiting and [board.rank] == running[:1] and self._all_wait(running):
            posted = [board.read("seen", rank) for rank in board.ranks]
            recorded = [others for others in posted if others is not None]
            if recorded and all(others.is_stopped or others.is_whole for others in recorded):
                self._stops(_line(board, board.rank))
            self._says(hangs(board))

    def _all_wait(self, running: Sequence[int]) -> bool:
        waits = [self._board.read("waits", rank) for rank in running]
        return all(waits) and any(is_in_collective for _, is_in_collective in waits)

    def _post_whether_it_waits(self) -> None:
        is_idle = self._idle_time.exceeds(self._patience)
        if is_idle != self._is_waiting:
            self._is_waiting = is_idle
            self._board.post("waits", self._where() if is_idle else None)
        has_failed = any(self._board.has("failed", rank) for rank in self._board.ranks)
        if has_failed and not self._board.has("meanwhile", self._board.rank):
            self._board.post("meanwhile", self._where())

    def _where(self) -> tuple[str, bool]:
        """The script's line, and whether it is in a collective."""
        frame = sys._current_frames().get(self._main)
        inner = [caller for caller, _ in traceback.walk_stack(frame)][:8] if frame else []
        files = [caller.f_code.co_filename for caller in inner]
        return place(frame), any(part in file for file in files for part in _WAITS)


# The report on a script that cannot go on: a cause, and a line for each rank

# Messages of torch, and their causes.
_ERRORS = (
    ("Expected to have finished reduction", "unused parameters"),
    ("mark a variable ready only once", "ready twice"),
    ("Timed out waiting", "timed out"),
    ("monitoredBarrier", "timed out"),
    ("wait timeout after", "timed out"),
)
_CONSEQUENCES = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")


def failed(board: Board) -> Finding | None:
    """The `Finding` of the first posted error that no other caused; None where none is posted."""
    failures = {rank: own for rank in board.ranks if (own := board.read("failed", rank))}
    if not failures:
        return None
    own = {
        rank: failure for rank, failure in failures.items()
        if not any(text in failure.error for text in _CONSEQUENCES)
    }  # fmt: skip
    rank, first = min((own or failures).items(), key=lambda pair: pair[1].seconds)
    cause = next((key for text, key in _ERRORS if text in first.error), "script failed")
    lines, place = [re.sub(r"\[/\S+\] ", "", first.error)], first.place
    others = [other for other in board.ranks if other != rank]
    if cause == "timed out":  # it waited for one that is elsewhere
        lines += [f"rank {rank} waited in {call}, and gave up" for call in board.calls(rank)[-1:]]
        known = {other: at for other in others if (at := board.read("meanwhile", other)) and at[0]}
        lines += [f"rank {other} was at {at} then" for other, (at, _) in known.items()]
        late = ((at, r) for r, (at, is_in_collective) in known.items() if not is_in_collective)
        place, rank = next(late, (place, rank))
    elif not own:
        lines += [_line(board, other) for other in others if other not in failures]
    return Finding(cause, "\n".join(lines), place, rank=rank)


def hangs(board: Board) -> Verdict:
    """The `Verdict` where all ranks wait: a posted error, else a hang, and where each rank is."""
    table = [_line(board, rank) for rank in board.ranks]
    if finding := failed(board):
        finding.says = "\n".join([finding.says, *(line for line in table if " waits: " in line)])
    else:
        waits = (board.read("waits", rank) or ("", False) for rank in board.ranks)
        place = next((at for at, is_in_collective in waits if is_in_collective), "")
        finding = Finding("hang", "\n".join(table), place)
    return _never_ended(finding)


def _never_ended(finding: Finding) -> Verdict:
    return Verdict(findings=[finding], not_compared=["updates: the script never ended"])


def ended(board: Board, how: Mapping[int, str]) -> Verdict:
    """The `Verdict` where ranks are gone (`how`: signal by rank): killed, or collectives differ."""
    how = {rank: signal_name for rank, signal_name in how.items() if not board.has("told", rank)}
    if not how:
        return Verdict(not_compared=["updates: the launch was ended by SIGTERM"])
    first = min(how)
    if any(board.has("seen", rank) for rank in how):
        says = f"anything: rank {first} was killed while it replayed (out of memory?)"
        return Verdict(not_compared=[says])
    calls = {rank: board.calls(rank) for rank in board.ranks}
    over = [r for r in board.ranks if board.has("seen", r) and not board.has("failed", r)]
    unlike = _unlike(calls)
    lines = []
    for rank, newest in calls.items():
        end = f", and was ended{how[rank] and f' by {how[rank]}'}" if rank in how else ""
        end = ", and its script has ended" if rank in over else end
        call = unlike.get(rank) or (newest[-1] if newest else "no collective")
        lines.append(f"rank {rank} called {call}{end}")
    last = [call for rank in how for call in calls[rank][-1:]]
    is_alone = any(_lacks(calls[rank], call) for call in last for rank in over)
    cause = "collectives differ" if unlike or is_alone else "killed"
    place = last[0].place if last else ""
    return _never_ended(Finding(cause, "\n".join(lines), place, rank=first))


def _unlike(calls: Mapping[int, Sequence[AnnouncedCall]]) -> dict[int, AnnouncedCall]:
    """By rank, the first calls with one number in their group that are not of one collective."""
    numbered = defaultdict[tuple[int, str], dict[int, AnnouncedCall]](dict)
    for rank, newest in calls.items():
        for call in newest:
            if call.group:
                numbered[call.number, call.group][rank] = call
    for _, peers in sorted(numbered.items()):
        if len({(call.kind, call.size) for call in peers.values()}) > 1:
            return peers
    return {}


def _lacks(newest: Sequence[AnnouncedCall], call: AnnouncedCall) -> bool:
    """Whether a rank has made the calls before one in its group, but not this one."""
    numbers = [own.number for own in newest if own.group == call.group]
    return bool(call.group and numbers) and max(numbers) < call.number


def _line(board: Board, rank: int) -> str:
    """A line of the report: where a rank is, or why it never came."""
    if (failure := board.read("failed", rank)) is not None:
        at = f" at {failure.place}" if failure.place else ""
        return f"rank {rank} never came: {failure.error}{at}"
    if board.has("seen", rank):
        return f"rank {rank} never came: its script has ended"
    at, is_in_collective = board.read("waits", rank) or ("?", False)
    newest = [f" in {call.kind}" for call in board.calls(rank)[-1:] if is_in_collective]
    return f"rank {rank} {'waits' if is_in_collective else 'is elsewhere'}: {at}{''.join(newest)}"


def _ignore(*_: Any) -> None:
    """Do nothing: a `Lookout` reads which signals came."""


def _forget() -> None:
    """Let a child of this process, such as a worker of a loader, end by a signal as usual."""
    signal.set_wakeup_fd(-1)
    if signal.getsignal(signal.SIGTERM) is _ignore:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
