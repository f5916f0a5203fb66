"""A launcher with ranks on several nodes, one in each process that torchrun started.

Rank 0's process names the next pass, and all of them run it: each forks its own rank, as the
launcher on one machine does, and shares how that rank ended.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

from proofbook.runners.core.declared.experiment import Declaration, Experiment, PassName, find
from proofbook.runners.core.measuring.endings import cause_among
from proofbook.runners.core.measuring.launch import Launcher, PassResult, Watch
from proofbook.runners.core.trace.outcome import RankOutcome
from proofbook.runners.session.peers import Peers

# Ranks here may wait for a long step on another node: silence alone does not mean that they hang.
SILENCE_SECONDS = 60.0


class NodeLauncher(Launcher):
    """Runs passes with one rank in this process, beside those that the other processes start."""

    def __init__(self, peers: Peers, device: str) -> None:
        super().__init__(device, quiet_seconds=SILENCE_SECONDS)
        self._peers = peers
        self._numbers = count()
        self._pass = ""

    def fitted(self, experiment: Experiment) -> Experiment:
        """An experiment as nodes run it: their clocks do not agree, so it has no timeline."""
        fitted = super().fitted(experiment)
        runs = {run: replace(declared, has_timeline=False) for run, declared in fitted.runs.items()}
        return replace(fitted, runs=runs)

    def is_crowded(self, declaration: Declaration) -> bool:
        """Whether a node gets more ranks of a run than it has cores, or accelerators."""
        num_local = min(declaration.world_size, self._peers.worker.num_local)
        return super().is_crowded(replace(declaration, world_size=num_local))

    def _requests(
        self, experiment: Experiment, run: str, pass_name: PassName, attempt: Path
    ) -> list[dict[str, Any]]:
        everybody = super()._requests(experiment, run, pass_name, attempt)
        if len(everybody) == 1:
            return everybody
        worker = self._peers.worker
        rendezvous = (worker.host, worker.port, f"ranks/{self._pass}")
        return [{**everybody[worker.rank], "rendezvous": rendezvous}]

    def run_pass(
        self,
        experiment: Experiment,
        run: str,
        pass_name: PassName,
        watch: Watch | None = None,
        followed: Mapping[str, list[float]] = MappingProxyType({}),
    ) -> PassResult:
        """Order a pass from all nodes; the `PassResult` joins their ranks. One rank runs here."""
        if experiment.runs[run].world_size == 1:
            return super().run_pass(experiment, run, pass_name, watch, followed)
        self._peers.put(f"order/{next(self._numbers)}", [experiment.name, run, pass_name])
        own = self._run_own(experiment, run, pass_name, watch)
        return self._joined(experiment, run, own)

    def serve(self) -> int:
        """Run this process's rank in passes that rank 0 orders; return the exit code it sends."""
        while True:
            order = self._peers.get(f"order/{next(self._numbers)}", 0)
            if isinstance(order, int):
                return order
            name, run, pass_name = order
            self._run_own(self.fitted(find(name)), run, pass_name, None)

    def finish(self, exit_code: int) -> None:
        """Tell the other processes to leave with this exit code; none is lost from then on."""
        self._peers.is_over = True
        self._peers.put(f"order/{next(self._numbers)}", exit_code)

    def _run_own(
        self, experiment: Experiment, run: str, pass_name: PassName, watch: Watch | None
    ) -> PassResult:
        """Run the pass with this process's own rank, and share its outcome."""
        self._pass = f"{experiment.name}.{run}/{pass_name}"
        own = super().run_pass(experiment, run, pass_name, watch)
        shared = [own.outcomes[0].model_dump(mode="json"), own.seconds, own.not_measured]
        self._peers.put(f"{self._pass}/{self._peers.worker.rank}", shared)
        return own

    def _joined(self, experiment: Experiment, run: str, own: PassResult) -> PassResult:
        """The result of a pass over all ranks; end where a node's loss makes it no evidence."""
        ranks = range(self._peers.worker.world_size)
        shared = [self._peers.get(f"{self._pass}/{rank}", rank) for rank in ranks]
        outcomes = [RankOutcome.model_validate_json(json.dumps(own)) for own, _, _ in shared]
        cause = cause_among(outcomes, [0] * len(outcomes))
        lost = {rank: why for rank, (_, _, why) in enumerate(shared) if why}
        has_died = any(outcome.status == "died" for outcome in outcomes)
        is_declared = experiment.runs[run].expected == "died"
        if cause and not is_declared and (has_died or cause.kind == "peer_lost"):
            lost.setdefault(cause.rank or 0, cause.message)
        for rank, why in lost.items():
            name = self._peers.name(rank)
            self._peers.lose(f"{experiment.name}.{run} is lost: {name}: {why}")
        return PassResult(outcomes, cause, own.printed, max(seconds for _, seconds, _ in shared))
