"""One rank of several nodes: what torchrun told this process, and a launcher of its rank alone.

In: torchrun's variables (`Place`) and the other processes (`peers.py`). Out: a `Launcher` that
starts one rank here, and whose passes end with the outcomes of all ranks, since each process tells
the others how its own ended. So what measures a run on one machine measures it on several, and
every process finds the same result.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from runners.cluster.peers import WORD_SECONDS, NodeLostError, Peers, say
from runners.measuring.endings import cause_among
from runners.measuring.launch import Launcher, PassResult, Watch
from runners.plans.experiment import Experiment, PassName, RunPlan
from runners.ranks.heartbeat import Beat
from runners.traces.outcome import RankOutcome
from runners.traces.records import Failure

STORE_SECONDS = timedelta(seconds=20)  # for torchrun's store, which has just answered torchrun
# Ranks here may wait for a long step on another node: quiet alone does not mean that they hang.
QUIET_SECONDS = 60.0
LOOK_SECONDS = 0.5  # between two looks at whether a rank of another node has failed
GRACE_SECONDS = 3.0  # for a rank here to meet such a failure by itself


class NodeError(ValueError):
    """What the caller can fix."""


class _PeerLostError(RuntimeError):
    """A rank of another node has failed, and the rank here goes on waiting for it."""


@dataclass(frozen=True)
class Place:
    """Where this process stands among those that torchrun started.

    Attributes:
        rank: of the whole.
        world_size: ranks on all nodes.
        num_local: ranks on this node.
        local: which of them, from 0.
        node: number of this node, from 0.
        num_nodes: how many nodes take part.
        host: of torchrun's store.
        port: of torchrun's store.
        has_store: torchrun itself keeps the store; else rank 0's process has to.
    """

    rank: int
    world_size: int
    num_local: int
    local: int
    node: int
    num_nodes: int
    host: str
    port: int
    has_store: bool = True

    @classmethod
    def told(cls, environment: Mapping[str, str]) -> Place:
        """As torchrun's variables say.

        Raises:
            NodeError: it is not torchrun that started this process.
        """
        try:
            return cls(
                int(environment["RANK"]),
                int(environment["WORLD_SIZE"]),
                int(environment["LOCAL_WORLD_SIZE"]),
                int(environment["LOCAL_RANK"]),
                int(environment["GROUP_RANK"]),
                int(environment["GROUP_WORLD_SIZE"]),
                environment["MASTER_ADDR"],
                int(environment["MASTER_PORT"]),
                environment.get("TORCHELASTIC_USE_AGENT_STORE", "True") == "True",
            )
        except KeyError as error:
            raise NodeError(
                f"{error} is not set; start it on each node with `python -m runners.cluster "
                "--nnodes 2 … EXPERIMENT.RUN`, or with "
                "`torchrun … -m runners.cluster.node EXPERIMENT.RUN`"
            ) from None

    def store(self) -> Store:
        """Torchrun's store, under a prefix of ours.

        Raises:
            NodeLostError: it does not answer.
        """
        keeps = self.rank == 0 and not self.has_store
        try:
            found = TCPStore(
                self.host, self.port, is_master=keeps, timeout=STORE_SECONDS, wait_for_workers=False
            )
        except RuntimeError:  # torch's message names a line of C++
            raise NodeLostError(
                f"node {self.node}: torchrun's store at {self.host}:{self.port} does not answer"
            ) from None
        return PrefixStore("proofbook", found)


class NodeLauncher(Launcher):
    """Starts this process's own rank, and hears how the others ended."""

    def __init__(self, place: Place, peers: Peers, device: str) -> None:
        super().__init__(device, quiet_seconds=QUIET_SECONDS)
        self._place = place
        self._peers = peers
        self._said = time.monotonic()
        self._pass = ""
        self._looked = 0.0
        self._lost_at: float | None = None

    def backend_of(self, plan: RunPlan) -> str:
        """NCCL where every rank of a node has a GPU of its own, gloo everywhere else."""
        return super().backend_of(replace(plan, world_size=self._place.num_local))

    def _requests(
        self, experiment: Experiment, plan: RunPlan, pass_name: PassName, attempt: Path
    ) -> list[dict[str, Any]]:
        own = super()._requests(experiment, plan, pass_name, attempt)[self._place.rank]
        own["rendezvous"] = (self._place.host, self._place.port, f"ranks/{self._pass}")
        return [own]

    def run_pass(
        self,
        experiment: Experiment,
        run: str,
        pass_name: PassName,
        watch: Watch | None = None,
        followed: Mapping[str, list[float]] = MappingProxyType({}),
    ) -> PassResult:
        """Run one pass to its end on all nodes; every process gets the outcomes of all ranks."""
        self._pass = f"{experiment.name}.{run}/{pass_name}"
        self._lost_at = None
        start = time.monotonic()

        def look(beats: list[Beat]) -> None:
            self._look(beats)
            if watch is not None:
                watch(beats)

        try:
            own = super().run_pass(experiment, run, pass_name, look, followed)
        except _PeerLostError as error:
            outcome = RankOutcome(
                rank=self._place.rank, status="failed", failure=_lost(self._place.rank, str(error))
            )
            own = PassResult([outcome], outcome.failure, [], time.monotonic() - start)
        return self._shared(own)

    def _look(self, beats: list[Beat]) -> None:
        """Stop waiting for a rank of another node that has failed; say what the rank here does."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        if self._place.rank == 0 and now - self._said > WORD_SECONDS:
            self._said = now
            say(f"{self._pass}: rank 0 is in {beats[0].phase}, step {beats[0].step}")
        if self._lost_at is None and self._peers.is_told(f"failure in {self._pass}"):
            self._lost_at = now
        if self._lost_at is not None and now - self._lost_at > GRACE_SECONDS:
            raise _PeerLostError("it still waited when a rank of another node had failed")

    def _shared(self, own: PassResult) -> PassResult:
        """The same pass with the outcomes of all ranks, whichever node they lived on."""
        if own.root_cause is not None:
            self._peers.tell(f"failure in {self._pass}")
        name = self._peers.name(self._place.rank)
        told = {
            "outcome": own.outcomes[0].model_dump(mode="json"),
            "printed": own.printed,
            "seconds": own.seconds,
            "not_measured": own.not_measured and f"{name}: {own.not_measured}",
        }
        heard = self._peers.gather(f"the end of {self._pass}", told)
        outcomes = [RankOutcome.model_validate_json(json.dumps(one["outcome"])) for one in heard]
        return PassResult(
            outcomes,
            cause_among(outcomes, [0] * len(outcomes)),
            heard[0]["printed"],
            max(one["seconds"] for one in heard),
            next((one["not_measured"] for one in heard if one["not_measured"]), None),
        )


def _lost(rank: int, words: str) -> Failure:
    return Failure(
        kind="peer_lost",
        message=f"rank {rank} was ended: {words}",
        requested_bytes=None,
        rank=rank,
        phase="peer",
        step=None,
    )
