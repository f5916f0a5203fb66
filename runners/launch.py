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
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from runners.experiment import Experiment, PassName, RunPlan
from runners.forkserver import ForkServer, LaunchError
from runners.heartbeat import Beat, listen
from runners.links import linked
from runners.outcome import RankOutcome
from runners.trace import Failure

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
CLEAN_SECONDS = 2.0  # the longest that files of killed ranks may take to go
QUIET_SECONDS = 6.0  # a rank that neither speaks nor burns processor time this long hangs
EXPECTED_QUIET_SECONDS = 2.5  # the same for a run that is meant to hang
# gloo's threads wake up a hundred times a second while they wait; that little is not work.
IDLE_SHARE = 0.02
MAX_WORDS = 300  # characters kept of what a process wrote before it ended itself
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
Watch = Callable[[list[Beat]], None]


def _cpu_ticks(pid: int) -> int | None:
    """Processor time of a process; None where the kernel does not say."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _wants_processor(pid: int) -> bool:
    """Whether a thread of a process would run if it could: on a busy machine some get no turn."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # the thread may have ended a moment ago
            if stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] in "RD":
                return True
    return False


@dataclass
class _Live:
    """One rank's process as the launcher sees it."""

    pid: int
    record: Path
    heart: Path
    exit_code: int | None = None
    outcome: RankOutcome | None = None
    ticks: int | None = None
    beat: Beat = field(default_factory=lambda: Beat(0, -1, "start"))
    quiet_since: float = field(default_factory=time.monotonic)
    quiet_ticks: int = 0

    def look(self, exit_code: int | None) -> None:
        """Read its record once it is there, its heartbeat, and whether it works."""
        self.exit_code = self.exit_code if exit_code is None else exit_code
        if self.outcome is None and self.record.exists():
            try:
                self.outcome = RankOutcome.model_validate_json(self.record.read_bytes())
            except ValidationError as error:
                raise LaunchError(f"a rank wrote a record that cannot be read: {error}") from None
        beat, ticks = listen(self.heart), _cpu_ticks(self.pid)
        now = time.monotonic()
        idle_ticks = IDLE_SHARE * (now - self.quiet_since) * TICKS_PER_SECOND
        works = ticks is not None and ticks - self.quiet_ticks > max(1.0, idle_ticks)
        if beat != self.beat or works:
            self.quiet_since, self.quiet_ticks = now, ticks or 0
        self.beat, self.ticks = beat, ticks

    def is_quiet(self, seconds: float) -> bool:
        # Where the kernel does not say who works, only heartbeats tell, and they come seldom.
        patience = seconds if self.ticks is not None else seconds * 10
        if time.monotonic() - self.quiet_since <= patience:
            return False
        if _wants_processor(self.pid):  # starved by others, not waiting for anybody
            self.quiet_since = time.monotonic()
            return False
        return True

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
        self._scratch = Path(tempfile.mkdtemp(prefix="proofbook-"))

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *exception: object) -> None:
        for server in self._servers.values():
            server.close()
        end = time.monotonic() + CLEAN_SECONDS
        while self._scratch.exists() and time.monotonic() < end:  # a dying rank may still write
            shutil.rmtree(self._scratch, ignore_errors=True)
            time.sleep(POLL_SECONDS)

    def _server(self, pass_name: PassName) -> ForkServer:
        environment = ALLOCATORS[pass_name]
        key = json.dumps(environment)
        if key not in self._servers:
            self._servers[key] = ForkServer(environment)
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
        import torch

        return "nccl" if torch.cuda.device_count() >= plan.world_size else "gloo"

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
            LaunchError: the ranks could not be started.
        """
        plan = experiment.runs[run]
        start = time.monotonic()
        attempt = Path(tempfile.mkdtemp(dir=self._scratch))
        requests = self._requests(experiment, plan, pass_name, attempt)
        for request in requests:
            request["followed"] = dict(followed)
        links = linked(plan.world_size, plan.link_bits_per_second)
        with links if plan.own_network else nullcontext() as namespaces:
            for request, namespace in zip(requests, namespaces or (), strict=False):
                request["namespace"] = namespace
            ranks, hung = self._live(self._server(pass_name), requests, watch)
        outcomes = [
            _settled(request["rank"], live, hung, _said(Path(request["errors"])))
            for request, live in zip(requests, ranks, strict=True)
        ]
        printed = _said(attempt / "rank0.out").splitlines()
        self._keep_errors(requests)
        shutil.rmtree(attempt, ignore_errors=True)
        return PassResult(
            outcomes,
            cause_among(outcomes, [live.beat.count for live in ranks]),
            printed,
            time.monotonic() - start,
        )

    def _requests(
        self, experiment: Experiment, plan: RunPlan, pass_name: PassName, attempt: Path
    ) -> list[dict[str, Any]]:
        """What each rank is told: what to do, with whom, and where to write."""
        return [
            {
                "experiment": experiment.name,
                "plan": asdict(plan),
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
            _Live(pid, Path(r["record"]), Path(r["heart"]))
            for pid, r in zip(pids, requests, strict=True)
        ]
        try:
            return ranks, self._follow(server, ranks, watch, self._patience(requests))
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
        self, server: ForkServer, ranks: list[_Live], watch: Watch | None, patience: float
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
                if waited > longest or all(r.is_quiet(SETTLE_SECONDS) for r in working):
                    return False
            elif all(live.is_quiet(patience) for live in working):
                return True

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


def _settled(rank: int, live: _Live, hung: bool, errors: str) -> RankOutcome:
    """The outcome of a rank, made up from what is known where it left no record."""
    if live.outcome is not None:
        return live.outcome
    beat = live.beat
    step = beat.step if beat.step >= 0 else None
    if live.exit_code is not None:
        code = live.exit_code
        what = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        if code == -signal.SIGABRT:
            what += _last_words(errors)
        failure = Failure(
            kind="signal" if code < 0 else "exception",
            message=f"rank {rank} died in {beat.phase}: {what}",
            asked_bytes=None,
            rank=rank,
            phase=beat.phase,
            step=step,
        )
        return RankOutcome(rank=rank, status="died", failure=failure)
    failure = Failure(
        kind="hang" if hung else "peer_lost",
        message=(
            f"rank {rank} stood still in {beat.phase}"
            if hung
            else f"rank {rank} was still in {beat.phase} when a peer failed"
        ),
        asked_bytes=None,
        rank=rank,
        phase=beat.phase,
        step=step,
    )
    return RankOutcome(rank=rank, status="deadlocked" if hung else "failed", failure=failure)


_GRAVITY = (
    "signal",
    "out_of_memory",
    "budget_too_small",
    "exception",
    "timed_out",
    "hang",
    "peer_lost",
)


def cause_among(outcomes: list[RankOutcome], beats: list[int]) -> Failure | None:
    """The failure that explains the others: a broken connection never does if anything else can.

    Of hanging ranks it is the one that fell behind: it spoke the fewest times.

    Args:
        outcomes: one a rank.
        beats: how often each of these ranks spoke.
    """
    failures = [
        (_GRAVITY.index(o.failure.kind), count, o.rank, o.failure)
        for o, count in zip(outcomes, beats, strict=True)
        if o.failure is not None
    ]
    return min(failures, key=lambda one: one[:3])[3] if failures else None
