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

from runners.core.declared.experiment import Declaration, Experiment, PassName, on_device
from runners.core.measuring.endings import LiveRank, cause_among, is_full, why_not_measured
from runners.core.measuring.forkserver import ForkServer
from runners.core.ranks.heartbeat import Beat
from runners.core.system.links import linked
from runners.core.system.scratch import Scratch
from runners.core.trace import machine
from runners.core.trace.outcome import RankOutcome
from runners.core.trace.records import Failure
from runners.system import stopping

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
    """Runs passes; keeps one forkserver for each environment of ranks."""

    def __init__(self, device: str = "cpu", quiet_seconds: float = QUIET_SECONDS) -> None:
        self.device = device
        self.quiet_seconds = quiet_seconds
        self.most_bytes: int | None = None  # that the ranks of a pass may take together
        self.instructions: Mapping[str, str] = {}  # variables that leave ranks fewer of them
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
        environment = {**ALLOCATORS[pass_name], **self.instructions}
        key = json.dumps(environment)
        if key not in self._servers:
            errors = self._scratch.path / f"forkserver{len(self._servers)}.err"
            self._servers[key] = ForkServer(environment, errors)
        return self._servers[key]

    def prepare(self, passes: Iterable[PassName]) -> None:
        """Start what these passes need, side by side, where nothing waits for the first of it."""
        for pass_name in passes:
            self._server(pass_name)

    def fitted(self, experiment: Experiment) -> Experiment:
        """An experiment as its ranks can run it here."""
        return on_device(experiment, self.device)

    def place_of(self, declaration: Declaration) -> Place:
        """Where the ranks of a run live: NCCL where each has a GPU of its own, else gloo."""
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
            ranks, hung = self._live(server, requests, watch)
        said = [_said(live.files.with_suffix(".err")) for live in ranks]
        outcomes = [
            live.ending(request["rank"], hung=hung, errors=errors)
            for request, live, errors in zip(requests, ranks, said, strict=True)
        ]
        is_limited = self.most_bytes is not None
        lacking = why_not_measured(declaration, pass_name, outcomes, attempt, is_limited=is_limited)
        printed = _said(attempt / "rank0.out").splitlines()
        if os.environ.get("PROOFBOOK_STDERR"):  # of a person who debugs
            sys.stderr.writelines(said)
        shutil.rmtree(attempt, ignore_errors=True)
        cause = cause_among(outcomes, [live.beat.count for live in ranks])
        return PassResult(outcomes, cause, printed, time.monotonic() - start, lacking)

    def is_full(self) -> bool:
        """Whether ranks have no space left to write into."""
        return is_full(self._scratch.path)

    def _requests(
        self, experiment: Experiment, run: str, pass_name: PassName, attempt: Path
    ) -> list[dict[str, Any]]:
        """What each rank gets: what to do, with whom, and where to write."""
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

    def _live(
        self, server: ForkServer, requests: list[dict[str, Any]], watch: Watch | None
    ) -> tuple[list[LiveRank], bool]:
        """Let the ranks live to their end; none outlives this call. Whether they hung, too."""
        pids = server.start(requests)
        ranks = [
            LiveRank(pid, request["files"], spins=request["device"] == "cuda")
            for pid, request in zip(pids, requests, strict=True)
        ]
        patience, settle = self.quiet_seconds, SETTLE_SECONDS
        if (
            requests[0]["declaration"]["expected"] == "deadlocked"
        ):  # a declared hang is believed sooner,
            patience = min(patience, EXPECTED_QUIET_SECONDS)
            settle = EXPECTED_QUIET_SECONDS  # and its ranks meet their time-outs one after another
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
            died = any(live.exit_code not in (None, 0) for live in ranks)
            if died or any(live.has_failed for live in ranks):
                failed_at = failed_at or time.monotonic()
                waited = time.monotonic() - failed_at
                longest = DEATH_GRACE_SECONDS if died else GRACE_SECONDS
                if waited > longest or all(live.is_quiet(settle) for live in working):
                    return False
            elif all(live.is_quiet(patience) for live in working):
                return True


def _said(path: Path) -> str:
    """What a rank wrote; nothing where it died before it could."""
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
