"""Run a program on gloo ranks under the meter, and say what each rank did, or how it failed.

In: a function of a `JudgedRank`, and how many ranks. Out: one `RankResult` a rank. A program that
hangs ends a few seconds after its ranks become idle, with the line at which each waits.
"""

from __future__ import annotations

import faulthandler
import functools
import gc
import io
import linecache
import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
import time
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import FileStore
from torch.utils._pytree import tree_map_only

from proofbook.runners.core.meters.collectives import (
    NAMESPACES,
    OPERATIONS,
    ends_of,
    payload_bytes,
    tensors_in,
)
from proofbook.runners.core.meters.memory import MemoryMeter
from proofbook.runners.core.system.processes import IdleTime, are_idle
from proofbook.runners.core.system.scratch import COMPILED, Scratch
from proofbook.runners.core.trace.measured import Memory
from proofbook.runners.judging.lending import Lent
from proofbook.runners.system.private import PrivateFolder

POLL_SECONDS = 0.01
MOST_PRINTED = 1000  # characters of what a rank prints
QUIET_SECONDS = 2.5  # ranks that are idle this long hang
ENDLESS_SECONDS = 20.0  # of processor time; programs that are judged take a second or two
SETTLE_SECONDS = 0.5  # the same once a peer has failed: what they meet says nothing more
STACK_SECONDS = 1.0  # a process may take to write where it waits
PICKLED = torch.uint8  # the dtype in which torch sends an object
MESSAGES = ("send", "recv_")  # in which a pipeline's stages tell each other shapes
ARRAYS = -1  # numpy's arrays and long lists, as if they were one storage
LONG_BYTES = 1024  # of a list or another object of Python, from which on it counts
LOOK_BYTES, LOOK_SHARE = 1 << 14, 0.1  # of new memory, after which arrays are counted again
BARRIERS = ("barrier", "monitored_barrier_")
PATIENCE = timedelta(minutes=30)  # not gloo's time-out decides what hangs
PRELOADED = [
    "proofbook.runners.judging.ranks",
    "torch._dynamo",
    "torch.distributed.tensor.parallel",
]
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in')
Program = Callable[..., Any]
Ending = Literal["exception", "died", "hung", "peer failed"]


class MeteredCall(NamedTuple):
    """A collective or a message: its operation, its payload, its source and its destination.

    `num_bytes` is the larger side of the call on this rank. Ranks are global; None stands for every
    rank.
    """

    operation: str
    num_bytes: int
    source: int | None = None
    destination: int | None = None


@dataclass(frozen=True)
class ProgramFailure:
    """How a rank ended without a result."""

    kind: Ending
    message: str  # one line
    line: str | None = None  # `file:line` of the program's own code, where it was then
    code: str | None = None  # the text of that line


@dataclass(frozen=True)
class RankResult:
    """The return value of one rank, its calls and memory while it was metered, and its failure."""

    rank: int
    returned: Any = None  # its tensors detached; None where it failed
    calls: tuple[MeteredCall, ...] = ()  # in order
    # Bytes of tensors, of numpy's arrays and of long lists, above what it held before.
    memory: Memory = field(default_factory=Memory)
    # Of those made while it was metered and held at its end, beside what is lent and its gradients.
    kept_bytes: int = 0
    # The names, as often as they were called, of what counts beside operations and bytes:
    # "barrier", "object collective" (it pickles), and "new process group".
    beside: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()  # of what it was lent, in words
    failure: ProgramFailure | None = None


class _Meter(MemoryMeter):
    """The memory meter with a list of the calls, both reported of a part of the program.

    It follows the whole program, and so knows the storages that were there before that part.
    """

    def __init__(self, files: Sequence[str]) -> None:
        super().__init__()
        self.calls: list[MeteredCall] = []
        self._beside: list[str] = []
        self._num_groups = self._first = 0  # the first storage that is reported
        self._files, self._looked_at = files, 0
        self.late: Callable[[int], float] = lambda _: 0.0  # seconds before each call of a kind
        self._num_calls: Counter[str] = Counter()

    def begin(self) -> None:
        """Begin the part that is reported."""
        self.calls.clear()
        self._log.clear()
        self._beside.clear()
        self._num_groups, self._first = _num_groups(), self._next
        self._sizes[ARRAYS] = self._looked_at = 0
        gc.freeze()  # the collector then lists only what is made from now on
        tracemalloc.start()  # never stopped: in Python 3.11, threads of gloo crash where it is
        tracemalloc.clear_traces()

    def end(self, lent: Sequence[Tensor] = ()) -> RankResult:
        """The calls since `begin`, and the memory above what was held then."""
        self._look_around()
        memory = self.memory(None)
        gc.collect()
        self._gloo.wait_until_idle()
        self._look_around()
        known = {self._keys.get(tensor.untyped_storage()._cdata) for tensor in lent}
        kept = sum(
            size
            for key, size in self._sizes.items()
            if (key >= self._first or key == ARRAYS) and key not in known
        )
        groups = ["new process group"] * (_num_groups() - self._num_groups)
        return RankResult(-1, None, tuple(self.calls), memory, kept, (*self._beside, *groups))

    def _look_around(self) -> None:
        """Follow what no operation shows: tensors that torch makes past them, arrays and lists."""
        of_arrays = {}  # the storages of tensors that share an array
        for tensor in gc.get_objects():
            if type(tensor) in (Tensor, nn.Parameter):
                storage = self._track(tensor)
                if not storage.resizable():
                    of_arrays[storage._cdata] = storage.nbytes()
        traces = tracemalloc.take_snapshot().traces
        size = sum(trace.size for trace in traces if self._counts(trace)) - sum(of_arrays.values())
        self._log.append((self.phase, ARRAYS, size - self._sizes[ARRAYS]))
        self._sizes[ARRAYS] = size
        self._looked_at = tracemalloc.get_traced_memory()[0]

    def _counts(self, trace: tracemalloc.Trace) -> bool:
        if trace.domain == np.lib.tracemalloc_domain:
            return True
        return trace.size >= LONG_BYTES and trace.traceback[0].filename in self._files

    def operate(self, func: Any, args: Any, kwargs: Any) -> Any:
        held, _ = tracemalloc.get_traced_memory()
        self._looked_at = min(self._looked_at, held)
        if held - self._looked_at > LOOK_BYTES + LOOK_SHARE * held:
            self._look_around()
        name = func.__name__.split(".")[0]
        if name in BARRIERS:
            self._beside.append("barrier")
        if func.namespace not in NAMESPACES or name not in OPERATIONS:
            return super().operate(func, args, kwargs)
        if name not in MESSAGES and any(tensor.dtype == PICKLED for tensor in tensors_in(args)):
            self._beside.append("object collective")
        time.sleep(self.late(self._num_calls[name]))
        self._num_calls[name] += 1
        result = super().operate(func, args, kwargs)
        num_bytes = max(payload_bytes(args), payload_bytes([result]))  # a gather may return it
        self.calls.append(MeteredCall(OPERATIONS[name], num_bytes, *ends_of(name, args)))
        return result


def _num_groups() -> int:
    return len(dist.distributed_c10d._world.pg_map)


class JudgedRank:
    """The argument of a judged program: its rank, the world size and the meter."""

    def __init__(self, rank: int, world_size: int, files: Sequence[str] = ()) -> None:
        self.rank, self.world_size = rank, world_size
        self.meter = _Meter(files)
        self._part: RankResult | None = None

    @contextmanager
    def metered(
        self, lent: Mapping[str, Any] | None = None, trained: Mapping[str, Any] | None = None
    ) -> Iterator[None]:
        """Meter this context alone; the rank's result has its calls, bytes and changes of `lent`.

        Args:
            lent: tensors, modules, and collections of them, by name; `RankResult.changed` says what
                is not as it was.
            trained: the same, but values may change.
        """
        snapshot = Lent(lent or {}, trained or {})
        self.meter.begin()
        yield
        part = self.meter.end(snapshot.tensors())
        self._part = replace(part, changed=tuple(snapshot.changes()))

    def result(self, returned: Any) -> RankResult:
        """The result of this rank, whose program has returned this."""
        detached = tree_map_only(Tensor, lambda tensor: tensor.detach().cpu().clone(), returned)
        return replace(self._part or self.meter.end(), rank=self.rank, returned=detached)

    def come_late(self, seconds: Sequence[float]) -> None:
        """Set pauses before an operation's first calls: `seconds[call]` on a rank, the last first.

        Peers then read too early what they do not await.
        """

        def late(call: int) -> float:
            is_late = (call + self.rank + 1) % self.world_size == 0
            return seconds[call] if is_late and call < len(seconds) else 0.0

        self.meter.late = late

    def name(self, kind: str, *tensors: Tensor) -> None:
        """Say what tensors are for: parameters, gradients, optimizer, buckets or buffers."""
        self.meter.name(tensors, kind)


def run(
    program: Program,
    world_size: int,
    *arguments: Any,
    quiet_seconds: float = QUIET_SECONDS,
    files: Sequence[Path] = (),
) -> list[RankResult]:
    """Call `program(JudgedRank, *arguments)` in a process a rank; a `RankResult` of each.

    Args:
        program: a function that can be pickled, as its arguments can.
        world_size: the number of ranks.
        arguments: equal on all ranks.
        quiet_seconds: of idle time, after which ranks hang.
        files: of which a failure names a line; by default the program's own.
    """
    with Scratch() as scratch:
        own = [str(file) for file in files] or [_file_of(program)]
        order = pickle.dumps((program, arguments))
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        ranks = []
        for rank in range(world_size):
            order_of_rank = (rank, world_size, scratch.path, order, own)
            process = context.Process(target=_run_rank, args=order_of_rank)
            ranks.append(_RankProcess(rank, process, scratch.path / f"rank{rank}"))
        try:
            # What starts now ignores Ctrl-C: the judge ends it, and nothing prints a traceback.
            resource_tracker.ensure_running()  # which would let them through again
            before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            forkserver.ensure_running()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for live in ranks:
                live.process.start()
            hung = _follow(ranks, quiet_seconds)
            for live in ranks:
                live.read_stack()
        finally:
            started = [live.process for live in ranks if live.process.pid]
            for child in started:  # all, before any is waited for: peers meet closed connections
                child.kill()
            for child in started:
                child.join()
        for live in ranks:
            live.print_labelled()
        return [live.result(hung, own) for live in ranks]


def _file_of(program: Program) -> str:
    while isinstance(program, functools.partial):
        program = program.func
    return program.__code__.co_filename


class _RankProcess:
    """The process of one rank, and the stem of the files that it writes."""

    def __init__(self, rank: int, process: BaseProcess, files: Path) -> None:
        self.rank, self.process, self.files = rank, process, files
        self._record = files.with_suffix(".pt")
        self._stack: str | None = None

    @property
    def is_working(self) -> bool:
        return self.process.is_alive() and not self._record.exists()

    @property
    def has_failed(self) -> bool:
        if self._record.exists():
            return self.files.with_suffix(".failed").exists()
        return not self.process.is_alive()

    def read_stack(self) -> None:
        """Keep the stack of the main thread, as faulthandler writes it, of a rank that works."""
        if not self.is_working:
            return
        path, end = self.files.with_suffix(".stack"), time.monotonic() + STACK_SECONDS
        with suppress(ProcessLookupError):
            os.kill(self.process.pid or 0, signal.SIGUSR1)
        while time.monotonic() < end and not (path.exists() and path.stat().st_size):
            time.sleep(POLL_SECONDS)
        time.sleep(POLL_SECONDS)
        self._stack = path.read_text(encoding="utf-8") if path.exists() else ""

    def print_labelled(self) -> None:
        """Print its output, with the rank before each line."""
        with suppress(OSError):
            printed = self.files.with_suffix(".out").read_text(encoding="utf-8")
            sys.stdout.writelines(f"[rank {self.rank}] {line}\n" for line in printed.splitlines())

    def result(self, hung: bool, files: Sequence[str]) -> RankResult:
        """The recorded result, or one that says where the rank still worked or of what it died."""
        if self._stack is not None:  # what it met since then says nothing
            kind: Ending = "hung" if hung else "peer failed"
            what = "waits, or goes on, for ever" if hung else "was still waiting when a peer failed"
            place = _innermost_line(self._stack, files)
            return RankResult(self.rank, failure=ProgramFailure(kind, what, *_with_code(place)))
        if self._record.exists():
            with PrivateFolder(self._record.parent).open(self._record.name) as file:
                recorded: RankResult = torch.load(file, weights_only=False)
            return recorded
        code = self.process.exitcode or 0
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return RankResult(self.rank, failure=ProgramFailure("died", f"the process died of {name}"))


def _follow(ranks: Sequence[_RankProcess], quiet_seconds: float) -> bool:
    """Wait until all ranks have ended or those that are left never will; whether they hang."""
    idle_times = {live.rank: IdleTime(live.process.pid or 0) for live in ranks}
    has_failed = False
    while True:
        time.sleep(POLL_SECONDS)
        working = [idle_times[live.rank] for live in ranks if live.is_working]
        if not working:
            return False
        if not has_failed and any(live.has_failed for live in ranks):
            has_failed = True
            for idle_time in working:  # what the failure makes them do is yet to come
                idle_time.restart()
        if are_idle(working, SETTLE_SECONDS if has_failed else quiet_seconds):
            return not has_failed
        if any(idle_time.worked_seconds > ENDLESS_SECONDS for idle_time in working):
            return True


def _innermost_line(stack: str, files: Sequence[str]) -> str | None:
    """`file:line` of the innermost frame of a stack that lies in one of these files."""
    frames = (match.group("file", "line") for match in _FRAME.finditer(stack))
    return next((f"{file}:{line}" for file, line in frames if file in files), None)


def _with_code(place: str | None) -> tuple[str | None, str | None]:
    """A `file:line`, and the code in that line."""
    if place is None:
        return None, None
    file, _, line = place.rpartition(":")
    linecache.checkcache(file)
    return place, linecache.getline(file, int(line)).strip() or None


def _run_rank(rank: int, world_size: int, folder: Path, order: bytes, files: Sequence[str]) -> None:
    """Run and record a program as one rank, then end this process."""
    threading.Thread(target=_end_with_the_judge, daemon=True).start()
    os.environ[COMPILED] = str(folder / "compiled")  # the forkserver's is gone, its name known
    stem = folder / f"rank{rank}"
    with stem.with_suffix(".stack").open("w", encoding="utf-8") as stack:
        faulthandler.register(signal.SIGUSR1, stack, all_threads=False)
        os.dup2(os.open(stem.with_suffix(".err"), os.O_WRONLY | os.O_CREAT, 0o600), 2)
        sys.stdout = _Printed(stem.with_suffix(".out"))
        torch.set_num_threads(1)
        try:
            result = _execute(rank, world_size, folder, order, files)
        except BaseException as error:  # noqa: BLE001 whatever it was, the judge must hear of it
            stem.with_suffix(".failed").touch()
            _write(RankResult(rank, failure=_failure(error, files)), stem)
            time.sleep(3600)  # to be ended; a closed connection would make peers fail
        _write(result, stem)
        if world_size > 1:
            dist.barrier()  # so that nobody meets a closed connection
        os._exit(0)


def _end_with_the_judge() -> None:
    """End this process with the one that asked for it; the forkserver would wait for its ranks."""
    judge = multiprocessing.parent_process()
    if judge is not None:
        wait([judge.sentinel])
    os._exit(1)


class _Printed(io.TextIOBase):
    """Standard output in a file of limited size; what libraries write to it is lost."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", errors="replace")
        self._left = MOST_PRINTED

    def write(self, text: str) -> int:
        """Keep the first characters."""
        kept, more = text[: self._left], len(text) > self._left
        if kept:
            self._file.write(kept + ("\n… and more, which is left out" if more else ""))
            self._file.flush()
        self._left -= len(kept)
        return len(text)


def _execute(
    rank: int, world_size: int, folder: Path, order: bytes, files: Sequence[str]
) -> RankResult:
    """Join the process group and call the program under the meter."""
    store = FileStore(str(folder / "store"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=PATIENCE)
    dist.barrier()  # connections stand before anything is metered
    program, arguments = pickle.loads(order)
    judged = JudgedRank(rank, world_size, files)
    judged.meter.begin()
    with judged.meter:
        returned = program(judged, *arguments)
    return judged.result(returned)


def _failure(error: BaseException, files: Sequence[str]) -> ProgramFailure:
    """An exception with its innermost line in one of these files."""
    message = f"{type(error).__name__}: {str(error).strip() or 'no message'}".splitlines()[0]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename in files]
    if isinstance(error, SyntaxError) and error.filename in files:
        return ProgramFailure("exception", message, f"{error.filename}:{error.lineno}", error.text)
    place = f"{own[-1].filename}:{own[-1].lineno}" if own else None
    return ProgramFailure("exception", message, place, own[-1].line if own else None)


def _write(result: RankResult, stem: Path) -> None:
    """Write a rank's record, which appears whole."""
    part = stem.with_suffix(".part")
    torch.save(result, part)
    part.rename(stem.with_suffix(".pt"))
