"""Start the ranks of one pass, watch them, and say how it ended.

In: an experiment, a run, a pass. Out: one `RankOutcome` a rank, with the root cause where one
failed. A rank that dies or hangs ends the pass within seconds; nothing outlives the launcher.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from runners.measuring import not_measured
from runners.measuring.forkserver import ForkServer
from runners.plans.experiment import Experiment, PassName, RunPlan
from runners.ranks.heartbeat import Beat, listen
from runners.system import limits, processes, stopping
from runners.system.errors import LaunchError
from runners.system.links import linked
from runners.system.scratch import Scratch
from runners.traces import machine
from runners.traces.outcome import RankOutcome
from runners.traces.records import Failure, Status

# Freed blocks must go back to the kernel where peaks are read or budgets set. The kernel then
# clears every page anew, which is most of an FSDP step; with huge pages that takes half as long,
# and a block still takes no more than its size. Timed passes do without both.
RETURNING = {
    "MALLOC_MMAP_THRESHOLD_": "262144",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
ALLOCATORS: dict[PassName, dict[str, str]] = {
    "timed": {},
    "metered": RETURNING,
    "budgeted": RETURNING,
}
POLL_SECONDS = 0.02
SETTLE_SECONDS = 1.0  # peers of a failed rank that burn no processor time this long are waiting
GRACE_SECONDS = 15.0  # the longest that peers of a failed rank may work on
DEATH_GRACE_SECONDS = 3.0  # the same where a rank died: what its peers meet says nothing more
QUIET_SECONDS = 6.0  # a rank that neither speaks nor burns processor time this long hangs
EXPECTED_QUIET_SECONDS = 2.5  # the same for a run that is meant to hang
# NCCL waits by spinning, on the device and in the process: processor time says nothing there, and
# only heartbeats do. They come at each phase, so ranks with an accelerator are given longer.
SPINNING_QUIET = 5.0  # times as long, before such ranks hang
SPINNING_SETTLE_SECONDS = 3.0  # the same for peers of a failed one
# gloo's threads wake up a hundred times a second while they wait; that little is not work.
IDLE_SHARE = 0.02
MAX_WORDS = 300  # characters kept of what a process wrote before it ended itself
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
Watch = Callable[[list[Beat]], None]


@dataclass
class _Live:
    """One rank's process as the launcher sees it."""

    pid: int
    record: Path
    heart: Path
    exit_code: int | None = None
    outcome: RankOutcome | None = None
    ticks: int | None = None
    is_stopped: bool = False
    beat: Beat = field(default_factory=lambda: Beat(0, -1, "start"))
    quiet_since: float = field(default_factory=time.monotonic)
    quiet_ticks: int = 0
    spins: bool = False  # whether it waits by spinning: it has an accelerator

    def look(self, exit_code: int | None) -> None:
        """Read its record once it is there, its heartbeat, and whether it works."""
        self.exit_code = self.exit_code if exit_code is None else exit_code
        if self.outcome is None and self.record.exists():
            try:
                self.outcome = RankOutcome.model_validate_json(self.record.read_bytes())
            except ValidationError as error:
                raise LaunchError(f"a rank wrote a record that cannot be read: {error}") from None
        beat = listen(self.heart)
        ticks = None if self.spins else processes.cpu_ticks(self.pid)
        now = time.monotonic()
        idle_ticks = IDLE_SHARE * (now - self.quiet_since) * TICKS_PER_SECOND
        works = ticks is not None and ticks - self.quiet_ticks > max(1.0, idle_ticks)
        if beat != self.beat or works:
            self.quiet_since, self.quiet_ticks = now, ticks or 0
        self.beat, self.ticks = beat, ticks
        self.is_stopped = processes.is_stopped(self.pid)

    def is_quiet(self, seconds: float) -> bool:
        if self.spins:
            return time.monotonic() - self.quiet_since > seconds * SPINNING_QUIET
        # Where the kernel does not say who works, only heartbeats tell, and they come seldom.
        patience = seconds if self.ticks is not None else seconds * 10
        if time.monotonic() - self.quiet_since <= patience:
            return False
        if processes.wants_processor(self.pid):  # starved by others, not waiting for anybody
            self.quiet_since = time.monotonic()
            return False
        return True

    def has_settled(self, seconds: float) -> bool:
        """Whether this peer of a failed rank only waits for it now, and has for these seconds."""
        if self.spins:
            return time.monotonic() - self.quiet_since > max(seconds, SPINNING_SETTLE_SECONDS)
        return self.is_quiet(seconds)

    @property
    def has_failed(self) -> bool:
        return self.outcome is not None and self.outcome.failure is not None

    @property
    def is_broken(self) -> bool:
        """Whether it failed, or left as no rank should."""
        return self.has_failed or self.exit_code not in (None, 0)

    @property
    def is_over(self) -> bool:
        return self.exit_code is not None or self.has_failed


@dataclass(frozen=True)
class PassResult:
    """How one pass ended."""

    outcomes: list[RankOutcome]
    root_cause: Failure | None
    printed: list[str]
    seconds: float
    not_measured: str | None = None  # why it is no evidence; None where it is


class Launcher:
    """Runs passes; keeps one forkserver for each setting of the allocator."""

    def __init__(
        self,
        device: str = "cpu",
        quiet_seconds: float = QUIET_SECONDS,
        most_bytes: int | None = None,
    ) -> None:
        self.device = device
        self.quiet_seconds = quiet_seconds
        self.most_bytes = most_bytes  # that the ranks of a pass may take together; None: no limit
        self._servers: dict[str, ForkServer] = {}
        self._scratch = Scratch()

    def __enter__(self) -> Launcher:
        stopping.at_end.append(self.close)
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self.close()
        except KeyboardInterrupt:  # stopped at the very end
            self.close()
            raise
        finally:
            stopping.at_end.remove(self.close)

    def close(self) -> None:
        """End the forkservers with all ranks, and remove what they left."""
        for server in self._servers.values():
            server.close()
        self._scratch.remove()

    def _server(self, pass_name: PassName) -> ForkServer:
        environment = ALLOCATORS[pass_name]
        key = json.dumps(environment)
        if key not in self._servers:
            errors = self._scratch.path / f"forkserver{len(self._servers)}.err"
            self._servers[key] = ForkServer(environment, errors)
        return self._servers[key]

    def prepare(self, passes: Iterable[PassName]) -> None:
        """Start what these passes need, side by side, where nothing waits for the first of it."""
        for pass_name in passes:
            self._server(pass_name)

    def device_of(self, plan: RunPlan) -> str:
        """The kind of device that the ranks of a run get."""
        return "cpu" if plan.only_on_cpu else self.device

    def backend_of(self, plan: RunPlan) -> str:
        """NCCL where every rank has a GPU of its own, gloo everywhere else."""
        if self.device_of(plan) != "cuda":
            return "gloo"
        return "nccl" if machine.num_places("cuda") >= plan.world_size else "gloo"

    def mixture(self, experiment: Experiment) -> str | None:
        """What to know of an experiment whose runs communicate over several backends here.

        Runs with an accelerator for each rank take NCCL, and larger ones share accelerators over
        gloo. Their results are comparable, and their times are not. One backend for all would
        leave NCCL unmeasured, or skip what gloo cannot do between accelerators.
        """
        sizes: dict[str, set[int]] = {}
        for plan in experiment.runs.values():
            if plan.world_size > 1 and self.device_of(plan) == "cuda":
                sizes.setdefault(self.backend_of(plan), set()).add(plan.world_size)
        if len(sizes) < 2:
            return None
        over = [
            f"runs of {' and '.join(map(str, sorted(ranks)))} ranks over {backend}"
            for backend, ranks in sorted(sizes.items(), reverse=True)
        ]
        return f"{', '.join(over)}, sharing accelerators: their times are not comparable"

    def run_pass(
        self,
        experiment: Experiment,
        run: str,
        pass_name: PassName,
        watch: Watch | None = None,
        followed: Mapping[str, list[float]] = MappingProxyType({}),
    ) -> PassResult:
        """Run one pass to its end.

        Args:
            experiment: with the run among its own.
            run: its name.
            pass_name: which pass.
            watch: is shown every rank's heartbeat, again and again.
            followed: times of the run that this one follows, in seconds.

        Raises:
            LaunchError: the ranks could not be started, or a limit of the shell ended one.
        """
        plan = experiment.runs[run]
        server = self._server(pass_name)
        server.wait_until_ready()  # the first pass would else contain the loading of torch
        start = time.monotonic()
        attempt = self._scratch.folder()
        requests = self._requests(experiment, plan, pass_name, attempt)
        for request in requests:
            request["followed"] = dict(followed)
        links = linked(plan.world_size, plan.link_bits_per_second)
        with links if plan.own_network else nullcontext() as namespaces:
            for request, namespace in zip(requests, namespaces or (), strict=False):
                request["namespace"] = namespace
            ranks, hung = self._live(server, requests, watch)
        outcomes = [
            _settled(request["rank"], live, hung, _said(Path(request["errors"])))
            for request, live in zip(requests, ranks, strict=True)
        ]
        is_limited = self.most_bytes is not None
        lacking = not_measured.cause(plan, pass_name, outcomes, attempt, is_limited=is_limited)
        printed = _said(attempt / "rank0.out").splitlines()
        self._keep_errors(requests)
        _check_limits(outcomes, requests)
        shutil.rmtree(attempt, ignore_errors=True)
        return PassResult(
            outcomes,
            cause_among(outcomes, [live.beat.count for live in ranks]),
            printed,
            time.monotonic() - start,
            lacking,
        )

    def is_full(self) -> bool:
        """Whether ranks have no space left to write into."""
        return not_measured.is_full(self._scratch.path)

    def _requests(
        self, experiment: Experiment, plan: RunPlan, pass_name: PassName, attempt: Path
    ) -> list[dict[str, Any]]:
        """What each rank is told: what to do, with whom, and where to write."""
        return [
            {
                "experiment": experiment.name,
                "plan": plan.as_json(),
                "most_bytes": self.most_bytes,
                "pass": pass_name,
                "rank": rank,
                "namespace": None,
                "device": self.device_of(plan),
                "backend": self.backend_of(plan),
                "store": str(attempt / "store"),
                "rendezvous": None,
                "record": str(attempt / f"rank{rank}.json"),
                "heart": str(attempt / f"rank{rank}.heart"),
                "output": str(attempt / f"rank{rank}.out"),
                "errors": str(attempt / f"rank{rank}.err"),
            }
            for rank in range(plan.world_size)
        ]

    def _live(
        self, server: ForkServer, requests: list[dict[str, Any]], watch: Watch | None
    ) -> tuple[list[_Live], bool]:
        """Let the ranks live to their end; none outlives this call. Whether they hung, too."""
        pids = server.start(requests)
        ranks = [
            _Live(pid, Path(r["record"]), Path(r["heart"]), spins=r["device"] == "cuda")
            for pid, r in zip(pids, requests, strict=True)
        ]
        try:
            # Ranks that are meant to hang meet time-outs of their own, and not all at once.
            hangs = requests[0]["plan"]["expected"] == "deadlocked"
            settle = EXPECTED_QUIET_SECONDS if hangs else SETTLE_SECONDS
            return ranks, self._follow(server, ranks, watch, self._patience(requests), settle)
        finally:
            for live in ranks:
                if live.exit_code is None:
                    with suppress(ProcessLookupError):  # it may have ended a moment ago
                        os.kill(live.pid, signal.SIGKILL)

    def _patience(self, requests: list[dict[str, Any]]) -> float:
        """How long ranks may be quiet before they hang; who is meant to hang is believed sooner."""
        hangs = requests[0]["plan"]["expected"] == "deadlocked"
        return min(self.quiet_seconds, EXPECTED_QUIET_SECONDS) if hangs else self.quiet_seconds

    def _follow(
        self,
        server: ForkServer,
        ranks: list[_Live],
        watch: Watch | None,
        patience: float,
        settle: float = SETTLE_SECONDS,
    ) -> bool:
        """Watch until all have ended, or until those left never will; whether they hang."""
        failed_at: float | None = None
        while True:
            time.sleep(POLL_SECONDS)
            codes = server.exits()
            for live in ranks:
                live.look(codes.get(live.pid))
            if watch is not None:
                watch([live.beat for live in ranks])
            working = [live for live in ranks if not live.is_over]
            if not working:
                return False
            if any(live.is_broken for live in ranks):
                failed_at = failed_at or time.monotonic()
                waited = time.monotonic() - failed_at
                died = any(live.exit_code not in (None, 0) for live in ranks)
                longest = DEATH_GRACE_SECONDS if died else GRACE_SECONDS
                if waited > longest or all(r.has_settled(settle) for r in working):
                    return False
            elif all(live.is_quiet(patience) for live in working):
                return not any(live.is_stopped for live in working)

    def _keep_errors(self, requests: list[dict[str, Any]]) -> None:
        """Let a person who debugs see what ranks wrote to standard error."""
        if not os.environ.get("PROOFBOOK_STDERR"):
            return
        for request in requests:
            sys.stderr.write(_said(Path(request["errors"])))


def _said(path: Path) -> str:
    """What a rank wrote; nothing where it died before it could."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _last_words(errors: str) -> str:
    """What a process that ended itself wrote last: why, as a library saw it."""
    lines = [line.strip().removeprefix("what():").strip() for line in errors.splitlines()]
    lines = [line for line in lines if line]
    return f" ({lines[-1][:MAX_WORDS]})" if lines else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of the many real-time signals few have a name
        return f"signal {number}"


def _settled(rank: int, live: _Live, hung: bool, errors: str) -> RankOutcome:
    """The outcome of a rank, made up from what is known where it left no record."""
    if live.outcome is not None:
        return live.outcome
    beat = live.beat
    step = beat.step if beat.step >= 0 else None
    if live.exit_code is not None:
        code = live.exit_code
        name = _signal_name(-code) if code < 0 else None
        what = name or f"exit code {code}"
        if code in (-signal.SIGABRT, not_measured.NO_REPORT):
            what += _last_words(errors)
        failure = Failure(
            kind="signal" if code < 0 else "exception",
            message=f"rank {rank} died in {beat.phase}: {what}",
            asked_bytes=None,
            rank=rank,
            phase=beat.phase,
            step=step,
            signal=name,
            exit_code=code if name is None else None,
        )
        return RankOutcome(rank=rank, status="died", failure=failure)
    kind, message = "peer_lost", f"rank {rank} was still in {beat.phase} when a peer failed"
    if live.is_stopped:
        kind = "stopped"
        message = f"rank {rank} was stopped (SIGSTOP) in {beat.phase} and not continued; run again"
    elif hung:
        kind, message = "hang", f"rank {rank} stood still in {beat.phase}"
    failure = Failure(
        kind=kind,
        message=message,
        asked_bytes=None,
        rank=rank,
        phase=beat.phase,
        step=step,
    )
    status: Status = "deadlocked" if kind == "hang" else "failed"
    return RankOutcome(rank=rank, status=status, failure=failure)


def _check_limits(outcomes: list[RankOutcome], requests: list[dict[str, Any]]) -> None:
    """Refuse as evidence what a limit of the shell (`ulimit`) has ended.

    Raises:
        LaunchError: with the limit's name, and what to do.
    """
    for outcome, request in zip(outcomes, requests, strict=True):
        if outcome.failure is None:
            continue
        line = outcome.failure.message if outcome.failure.kind == "limit" else None
        if outcome.status == "died":
            line = limits.blamed(_said(Path(request["errors"])))
        if line is not None:
            raise LaunchError(line)


_GRAVITY = (
    "signal",
    "stopped",
    "limit",
    "out_of_memory",
    "budget_too_small",
    "exception",
    "timed_out",
    "hang",
    "peer_lost",
)


def cause_among(outcomes: list[RankOutcome], beats: list[int]) -> Failure | None:
    """The failure that explains the others: a broken connection never does if anything else can.

    Of hanging ranks it is the one that fell behind: it spoke the fewest times. Where several spoke
    equally few times, no rank is to blame, and the failure names them all.

    Args:
        outcomes: one a rank.
        beats: how often each of these ranks spoke.
    """
    failures = [
        (_GRAVITY.index(o.failure.kind), count, o.rank, o.failure)
        for o, count in zip(outcomes, beats, strict=True)
        if o.failure is not None
    ]
    if not failures:
        return None
    first = min(failures, key=lambda one: one[:3])
    behind = [one[3] for one in failures if one[:2] == first[:2]]
    return _of_nobody(behind) if first[3].kind == "hang" and len(behind) > 1 else first[3]


def _of_nobody(hanging: list[Failure]) -> Failure:
    """One failure of ranks that hang together, none of which is behind the others."""
    first, *others = hanging
    places = ", ".join(f"rank {one.rank} in {one.phase}" for one in others)
    phases = sorted({one.phase for one in hanging})
    steps = {one.step for one in hanging}
    return Failure(
        kind="hang",
        message=f"{first.message}, {places}; no rank fell behind",
        asked_bytes=None,
        rank=None,
        phase=" and ".join(phases),
        step=steps.pop() if len(steps) == 1 else None,
    )
