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
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from proofbook.runners.core.declared.experiment import Declaration, Experiment, PassName, on_device
from proofbook.runners.core.measuring.endings import (
    LiveRank,
    cause_among,
    is_full,
    why_not_measured,
)
from proofbook.runners.core.measuring.forkserver import ForkServer
from proofbook.runners.core.ranks.heartbeat import Beat
from proofbook.runners.core.system.links import linked
from proofbook.runners.core.system.processes import IdleTime, are_idle
from proofbook.runners.core.system.scratch import Scratch
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.outcome import RankOutcome
from proofbook.runners.core.trace.records import Failure
from proofbook.runners.system import stopping

# Freed blocks must go back to the kernel where peaks are read or budgets set. The kernel then
# clears every page anew, which is most of an FSDP step; under a budget huge pages halve that, and a
# block still takes no more than its size. Metered ranks refuse them; timed passes do without both.
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
Watch = Callable[[list[Beat]], None]


class Place(NamedTuple):
    """The kind of device that the ranks of a run get, and the backend between them."""

    device: str
    backend: str


@dataclass(frozen=True)
class PassResult:
    """How one pass ended."""

    outcomes: list[RankOutcome]
    root_cause: Failure | None
    printed: list[str]
    seconds: float
    not_measured: str | None = None  # why it is no evidence; None where it is


class Launcher:
    """Runs passes on ranks of this machine; keeps a forkserver for each environment of ranks."""

    def __init__(self, device: str = "cpu", quiet_seconds: float = QUIET_SECONDS) -> None:
        self.device = device
        self.quiet_seconds = quiet_seconds
        self.most_bytes: int | None = None  # that the ranks of a pass may take together
        self.instructions: Mapping[str, str] = {}  # variables that leave ranks fewer of them
        self.is_short = False  # runs have the sizes of a try
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
        """End the forkservers with all ranks, and remove the scratch folder."""
        for server in self._servers.values():
            server.close()
        self._scratch.remove()

    def _server(self, pass_name: PassName) -> ForkServer:
        environment = {**ALLOCATORS[pass_name], **self.instructions}
        key = json.dumps(environment)
        if key not in self._servers:
            errors = self._scratch.path / f"forkserver{len(self._servers)}.err"
            self._servers[key] = ForkServer(environment, errors)
        return self._servers[key]

    def prepare(self, passes: Iterable[PassName]) -> None:
        """Start the forkservers of these passes side by side, without waiting for them."""
        for pass_name in passes:
            self._server(pass_name)

    def fitted(self, experiment: Experiment) -> Experiment:
        """An experiment with the sizes of its runs on this launcher's kind of device."""
        return on_device(experiment, self.device, is_short=self.is_short)

    def place_of(self, declaration: Declaration) -> Place:
        """Device and backend of a run's ranks: NCCL where each has a GPU of its own, else gloo."""
        if self.device != "cuda" or declaration.only_on_cpu:
            return Place("cpu", "gloo")
        return Place("cuda", "gloo" if self.is_crowded(declaration) else "nccl")

    def is_crowded(self, declaration: Declaration) -> bool:
        """Whether a run has more ranks than there are cores, or accelerators, to compute on."""
        return declaration.world_size > machine.num_places(
            "cpu" if declaration.only_on_cpu else self.device
        )

    def run_pass(
        self,
        experiment: Experiment,
        run: str,
        pass_name: PassName,
        watch: Watch | None = None,
        followed: Mapping[str, list[float]] = MappingProxyType({}),
    ) -> PassResult:
        """A `PassResult` of forked ranks, once all ended: outcomes, root cause, output, seconds.

        `watch` gets all heartbeats, again and again; `followed` are seconds of the followed run.

        Raises:
            LaunchError: the ranks could not be started.
        """
        declaration = experiment.runs[run]
        server = self._server(pass_name)
        server.wait_until_ready()  # the first pass would else contain the loading of torch
        start = time.monotonic()
        attempt = self._scratch.folder()
        requests = self._requests(experiment, run, pass_name, attempt)
        links = linked(declaration.world_size, declaration.link_bits_per_second)
        with links if declaration.own_network else nullcontext() as namespaces:
            for request in requests:
                own = namespaces[request["rank"]] if namespaces else None
                request |= {"followed": dict(followed), "namespace": own}
            ranks, hung = self._run_ranks(server, requests, watch)
        errors = [_text_of(live.files.with_suffix(".err")) for live in ranks]
        outcomes = [
            live.ending(request["rank"], hung=hung, errors=text)
            for request, live, text in zip(requests, ranks, errors, strict=True)
        ]
        is_limited = self.most_bytes is not None
        lacking = why_not_measured(declaration, pass_name, outcomes, attempt, is_limited=is_limited)
        printed = _text_of(attempt / "rank0.out").splitlines()
        if os.environ.get("PROOFBOOK_STDERR"):  # of a person who debugs
            sys.stderr.writelines(errors)
        shutil.rmtree(attempt, ignore_errors=True)
        cause = cause_among(outcomes, [live.beat.count for live in ranks])
        return PassResult(outcomes, cause, printed, time.monotonic() - start, lacking)

    def is_full(self) -> bool:
        """Whether the scratch folder has no space left for what ranks write."""
        return is_full(self._scratch.path)

    def _requests(
        self, experiment: Experiment, run: str, pass_name: PassName, attempt: Path
    ) -> list[dict[str, Any]]:
        """The request to each rank: its run and pass, its device and its files."""
        declaration = experiment.runs[run]
        return [
            {
                "experiment": experiment.name,
                "run": run,
                "declaration": {**vars(declaration), "settings": declaration.settings.declared()},
                "most_bytes": self.most_bytes,
                "pass": pass_name,
                "rank": rank,
                **self.place_of(declaration)._asdict(),
                "rendezvous": None,
                "files": attempt / f"rank{rank}",
            }
            for rank in range(declaration.world_size)
        ]

    def _run_ranks(
        self, server: ForkServer, requests: list[dict[str, Any]], watch: Watch | None
    ) -> tuple[list[LiveRank], bool]:
        """Start the ranks and follow them to their end: none outlives this call. Did they hang?"""
        pids = server.start(requests)
        ranks = [
            LiveRank(pid, request["files"], spins=request["device"] == "cuda")
            for pid, request in zip(pids, requests, strict=True)
        ]
        patience, settle = self.quiet_seconds, SETTLE_SECONDS
        if requests[0]["declaration"]["expected"] == "deadlocked":
            # A declared hang is believed sooner, and its ranks meet their time-outs in turn.
            patience, settle = min(patience, EXPECTED_QUIET_SECONDS), EXPECTED_QUIET_SECONDS
        try:
            return ranks, self._follow(server, ranks, watch, patience, settle)
        finally:
            for live in ranks:
                if live.exit_code is None:
                    with suppress(ProcessLookupError):  # it may have ended a moment ago
                        os.kill(live.pid, signal.SIGKILL)

    def _follow(
        self,
        server: ForkServer,
        ranks: list[LiveRank],
        watch: Watch | None,
        patience: float,
        settle: float,
    ) -> bool:
        """Wait until all ranks are over or those that are left are idle; whether they hang."""
        failed_at: float | None = None
        while working := _update(server, ranks, watch):
            died = any(live.exit_code not in (None, 0) for live in ranks)
            if not died and not any(live.has_failed for live in ranks):
                if are_idle(working, patience):
                    return True
                continue
            if failed_at is None:
                failed_at = time.monotonic()
                for idle_time in working:  # what the failure makes them do is yet to come
                    idle_time.restart()
            longest = DEATH_GRACE_SECONDS if died else GRACE_SECONDS
            if time.monotonic() - failed_at > longest or are_idle(working, settle):
                return False
        return False


def _update(server: ForkServer, ranks: list[LiveRank], watch: Watch | None) -> list[IdleTime]:
    """Wait a moment and read all ranks; the idle times of those that are not over."""
    time.sleep(POLL_SECONDS)
    codes = server.exits()
    for live in ranks:
        live.update(codes.get(live.pid))
    if watch is not None:
        watch([live.beat for live in ranks])
    return [live.idle_time for live in ranks if not live.is_over]


def _text_of(path: Path) -> str:
    """A file that a rank wrote; empty where it died before it could."""
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
