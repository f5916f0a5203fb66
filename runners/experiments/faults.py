"""A rank dies, and training goes on: under the elastic launcher, from a distributed checkpoint.

The same sharded training is left in peace, killed at a step that a seed decides and resumed, and
resumed with a part of its state forgotten. What a checkpoint and a restart cost is measured, and
then replayed over failure times of a long training: how often should one save?

    python -m runners run faults

Each rank that is killed is this file too, started by torchrun's elastic launcher (`main`).
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import FileStore
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import fully_shard

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, CountOrZero, Factor, RunSettings
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.traces.schema import Setting
from runners.training.networks import description


def main() -> None:
    """One rank from one death to the next: take up the last whole checkpoint, train, save."""
    attempt = Attempt()
    settings = attempt.settings
    training = Training(settings, attempt.seed)
    place = last_checkpoint(attempt.folder)
    if place is not None:
        training.load(place)
    attempt.note("resumed", training.step)
    while training.step < settings.num_steps:
        dist.barrier()  # all have got here: how many steps a death costs is the same each time
        if attempt.ends_at(training.step, "step"):
            attempt.die(training.step)
        start = time.perf_counter()
        training.take_step()
        attempt.note("step", training.step, seconds=time.perf_counter() - start)
        if training.step % settings.checkpoint_every == 0:
            start = time.perf_counter()
            tears = attempt.ends_at(training.step, "save")
            training.save(attempt.folder, attempt.die if tears else None)
            attempt.note("saved", training.step, seconds=time.perf_counter() - start)
    attempt.note("ended", training.step, digest=parameter_digest(training.model.parameters()))
    dist.barrier()
    os._exit(0)


def undisturbed(rank: Rank[Settings]) -> None:
    """From the first step to the last, with no checkpoint."""
    _describe(rank, rank.world_size)
    _train(rank, Training(rank.settings, rank.seed))


def resumed(rank: Rank[ResumedSettings]) -> None:
    """Saved after some steps, built anew, loaded and gone on; without what is forgotten."""
    _describe(rank, rank.world_size)
    folder = rank.scratch / "checkpoints"
    first = Training(rank.settings, rank.seed)
    while first.step < rank.settings.stop_step:
        first.take_step()
    with rank.phase("save"):
        first.save(folder)
    del first
    place = last_checkpoint(folder)
    assert place is not None
    second = Training(rank.settings, rank.seed)
    with rank.phase("load"):
        second.load(place)
    if rank.settings.forgets == "optimizer":
        second.forget_optimizer()
    if rank.settings.forgets == "position":
        second.sampler_step = 0
    _train(rank, second)
    dist.barrier()


def _train(rank: Rank[Settings], training: Training) -> None:
    """To the last step; the rank's clock reads each."""
    rank.watch(training.model, training.optimizer)
    for _ in rank.steps(rank.settings.num_steps - training.step):
        with rank.phase("step"):
            training.take_step()


def _describe(rank: Rank[Settings], num_ranks: int) -> None:
    num_layers = rank.settings.num_layers
    widths = [rank.settings.width] * (num_layers + 1)
    holders = [range(num_ranks)] * num_layers
    rank.describe(description(widths, holders, sharded=[True] * num_layers))


class Training:
    """A model that lives as shards on all ranks of the group, its optimizer, and its next step.

    All that a step depends on is in the state or follows from the number of the step, samples too:
    so a training that is resumed can equal one that never stopped.
    """

    def __init__(self, settings: Settings, seed: int) -> None:
        self.settings, self.seed = settings, seed
        self.step = 0
        self.sampler_step = 0  # which samples come next: the number of the step, unless forgotten
        torch.manual_seed(seed)
        width = settings.width
        self.model = nn.Sequential(*[nn.Linear(width, width) for _ in range(settings.num_layers)])
        fully_shard(self.model)
        self.forget_optimizer()

    def take_step(self) -> None:
        """One step on samples that the seed, the step and the rank decide."""
        source = torch.Generator().manual_seed(
            self.seed + 1000 * self.sampler_step + dist.get_rank()
        )
        samples = torch.randn(self.settings.batch_size, self.settings.width, generator=source)
        loss = nn.functional.mse_loss(self.model(samples), samples.flip(1))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.sampler_step += 1

    def forget_optimizer(self) -> None:
        """Start with a new optimizer, as one must who saved parameters alone."""
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.settings.learning_rate)

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def save(self, folder: Path, tear: Callable[[int], None] | None = None) -> None:
        """Write a checkpoint: every rank its shards of parameters and of the optimizer's state.

        Args:
            folder: where checkpoints lie, each in a folder of its own.
            tear: given the step on the first rank at the worst moment: all shards are written, and
                what says so is not.
        """
        writer = _Writer(folder / f"step-{self.step:06}")
        if tear is not None:
            writer.before_metadata = lambda: tear(self.step)
        save(self._state(), storage_writer=writer)

    def load(self, place: Path) -> None:
        """Go on from a checkpoint."""
        state = self._state()
        load(state, checkpoint_id=place)
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = self.sampler_step = state["step"]


class _Writer(FileSystemWriter):
    before_metadata: Callable[[], None] | None = None

    def finish(self, *arguments: Any, **more: Any) -> None:
        if self.before_metadata is not None:
            self.before_metadata()
        super().finish(*arguments, **more)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that is whole; None where there is none."""
    # One rank writes the metadata last: a folder without it holds half a checkpoint.
    whole = [place.parent for place in folder.glob("step-*/.metadata")]
    return max(whole, default=None)


# --- deaths under the elastic launcher

PLAN = "PROOFBOOK_FAULTS"  # what the ranks of an attempt are told: the fields below, as JSON
NUM_SPARE_RESTARTS = 3  # for deaths that are not planned
BEAT_SECONDS = 0.1
TIMEOUT = timedelta(seconds=60)  # of a collective in which a rank is missing
Event = dict[str, Any]


class Attempt:
    """One start of a rank's process, after as many deaths as its number says."""

    def __init__(self) -> None:
        plan = json.loads(os.environ[PLAN])
        _end_with(plan["launcher"])
        self.folder = Path(plan["folder"])
        self.settings = ElasticSettings.from_json(plan["settings"])
        self.seed: int = plan["seed"]
        self.rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.number = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        torch.set_num_threads(1)
        # A store of each attempt's own: what a dead attempt left behind would confuse the next.
        store = FileStore(str(self.folder / f"store-{self.number}"), world_size)
        dist.init_process_group(
            "gloo", store=store, rank=self.rank, world_size=world_size, timeout=TIMEOUT
        )

    def note(self, what: str, step: int, **more: Any) -> None:
        """Add a line to the events, at once and whole."""
        event = {"what": what, "step": step, "attempt": self.number, "rank": self.rank, **more}
        with (self.folder / "events.jsonl").open("a") as events:
            events.write(json.dumps({"at": time.monotonic(), **event}) + "\n")

    def ends_at(self, step: int, moment: str) -> bool:
        """Whether this rank is to die here: `step` before that step, `save` in that save."""
        deaths = self.settings.deaths()[self.number : self.number + 1]
        return moment == self.settings.moment and (step, self.rank) in deaths

    def die(self, step: int) -> None:
        """Leave as a machine does that loses power: without a word to the other ranks."""
        self.note("dies", step)
        os.kill(os.getpid(), signal.SIGKILL)


def _end_with(launcher: int) -> None:
    """Let the kernel end this process when the launcher ends, however that ends; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != launcher:
            os._exit(1)  # it has ended already


def elastic(rank: Rank[ElasticSettings]) -> None:
    """Ranks of the elastic launcher train, die as planned, and are started again."""
    import torch.distributed.run

    settings = rank.settings
    _describe(rank, settings.num_ranks)
    folder = rank.scratch / "faults"
    folder.mkdir()
    plan = {"folder": str(folder), "launcher": os.getpid(), "seed": rank.seed}
    os.environ[PLAN] = json.dumps({**plan, "settings": settings.declared()})
    started = time.monotonic()
    with rank.phase("elastic launcher"), _beating(rank):
        torch.distributed.run.main(
            [
                "--standalone",
                f"--nproc-per-node={settings.num_ranks}",
                f"--max-restarts={settings.num_deaths + NUM_SPARE_RESTARTS}",
                "--monitor-interval=0.05",
                f"--log-dir={folder / 'log'}",
                "--module",
                "runners.experiments.faults",
            ]
        )
    lines = (folder / "events.jsonl").read_text().splitlines()
    events = sorted((json.loads(line) for line in lines), key=lambda event: event["at"])
    _record(rank, events, started)


def _record(rank: Rank[ElasticSettings], events: list[Event], started: float) -> None:
    """Record what the events show: steps lost, costs of checkpoints and restarts, the end."""
    first = [e for e in events if e["rank"] == 0]
    steps = [e for e in first if e["what"] == "step"]
    taken_up = [e for e in first if e["what"] == "resumed"]
    ended = sorted((e for e in events if e["what"] == "ended"), key=lambda e: e["rank"])
    rank.outcome.step_seconds = [e["seconds"] for e in steps]
    rank.measure_seconds("checkpoint", [e["seconds"] for e in first if e["what"] == "saved"])
    rank.measure_seconds("start", [taken_up[0]["at"] - started])
    rank.measure_seconds("restart", _restarts(events))
    rank.measure("num_attempts", len(taken_up))
    rank.measure("num_steps_computed", len(steps))
    rank.measure("num_steps_lost", len(steps) - ended[0]["step"])
    rank.measure("resumed_at_steps", [e["step"] for e in taken_up[1:]])
    rank.measure("parameter_digests", [e["digest"] for e in ended])
    last = max((rank.scratch / "faults").glob("step-*"), default=None)
    if last is not None:
        files = sorted(last.glob("*.distcp"))
        rank.measure("checkpoint_file_bytes", [file.stat().st_size for file in files])
        rank.measure("checkpoint_bytes", sum(file.stat().st_size for file in last.iterdir()))


def _restarts(events: list[Event]) -> list[float]:
    """From each death to the moment at which all ranks have taken up the training again."""
    seconds = []
    for death in (e for e in events if e["what"] == "dies"):
        resumed = (e for e in events if e["what"] == "resumed")
        taken_up = [e["at"] for e in resumed if e["attempt"] == death["attempt"] + 1]
        if taken_up:  # else another death, which nobody planned, came before
            seconds.append(max(taken_up) - death["at"])
    return seconds


@contextmanager
def _beating(rank: Rank) -> Iterator[None]:
    """Let this rank's heart beat while the processes that it started work; those have time-outs."""
    is_over = threading.Event()

    def beat() -> None:
        while not is_over.wait(BEAT_SECONDS):
            rank.beat()

    beater = threading.Thread(target=beat, daemon=True)
    beater.start()
    try:
        yield
    finally:
        is_over.set()
        beater.join()


# --- a long training on paper: how often to save


@dataclass(frozen=True)
class Costs:
    """What was measured, in seconds, and the mean time between two failures."""

    step_seconds: float
    checkpoint_seconds: float
    restart_seconds: float
    mtbf_seconds: float


def replay(costs: Costs, num_steps_between: int, num_steps: int, seed: int) -> float:
    """Seconds that so many steps take, with failures at random and a checkpoint now and then.

    A failure loses what was done since the last whole checkpoint. It can fall into a restart, which
    then begins again, or into a checkpoint, which is then worth nothing.
    """
    source = random.Random(seed)
    segment = num_steps_between * costs.step_seconds + costs.checkpoint_seconds
    num_segments = math.ceil(num_steps / num_steps_between)
    now, failure = 0.0, 0.0
    while True:
        failure += source.expovariate(1 / costs.mtbf_seconds)
        num_done = max(0, int((failure - now) // segment))
        if num_done >= num_segments:
            return now + num_segments * segment
        num_segments -= num_done
        now = failure + costs.restart_seconds


def expected_seconds(costs: Costs, num_steps_between: int, num_steps: int) -> float:
    """The mean of what `replay` gives, by Daly's closed form for exponential failure times."""
    mtbf, work = costs.mtbf_seconds, num_steps_between * costs.step_seconds
    per_segment = math.exp(costs.restart_seconds / mtbf) * math.expm1(
        (work + costs.checkpoint_seconds) / mtbf
    )
    return mtbf * per_segment * num_steps / num_steps_between


def young_seconds(costs: Costs) -> float:
    """Young's first-order interval between two checkpoints."""
    return math.sqrt(2 * costs.checkpoint_seconds * costs.mtbf_seconds)


def daly_seconds(costs: Costs) -> float:
    """Daly's higher-order interval between two checkpoints."""
    if costs.checkpoint_seconds >= 2 * costs.mtbf_seconds:
        return costs.mtbf_seconds
    ratio = math.sqrt(costs.checkpoint_seconds / (2 * costs.mtbf_seconds))
    return young_seconds(costs) * (1 + ratio / 3 + ratio**2 / 9) - costs.checkpoint_seconds


def replayed(rank: Rank[ReplayedSettings]) -> None:
    """Measured costs, seeded failures, and intervals around Young's; nothing is timed."""
    costs = Costs(
        statistics.median(rank.followed["step"]),
        statistics.median(rank.followed["checkpoint"]),
        statistics.median(rank.followed["restart"]),
        rank.settings.mtbf_seconds,
    )
    work = costs.mtbf_seconds * rank.settings.num_failures
    num_steps = round(work / costs.step_seconds)

    def tried(interval: float) -> tuple[float, float, float]:
        """The interval in whole steps, and the seconds of the training, replayed and expected."""
        between = max(1, round(interval / costs.step_seconds))
        return (
            between * costs.step_seconds,
            replay(costs, between, num_steps, rank.settings.fault_seed),
            expected_seconds(costs, between, num_steps),
        )

    young, daly = young_seconds(costs), daly_seconds(costs)
    # Powers of the root of two around Young's interval.
    around = [tried(2 ** (exponent / 2) * young) for exponent in range(-6, 7)]
    best = min(seconds for _, seconds, _ in around)
    at = {"best": best, "young": tried(young)[1], "daly": tried(daly)[1]}
    for name, seconds in {
        "interval": [one[0] for one in around],
        "replayed": [one[1] for one in around],
        "predicted": [one[2] for one in around],
        "young_interval": [young],
        "daly_interval": [daly],
        **{f"replayed_at_{name}": [one] for name, one in at.items()},
        "predicted_at_young": [tried(young)[2]],
        **{f"lost_at_{name}": [one - work] for name, one in at.items()},
    }.items():
        rank.measure_seconds(name, seconds)


QUESTION = "What does it take for a training run that was killed to end as if nothing had happened?"


class Settings(RunSettings):
    """A stack of layers of width², trained by Adam."""

    width: Count = 640
    num_layers: Count = 2
    batch_size: Count = 32
    num_steps: Count = 30
    learning_rate: Factor = 0.001


class ResumedSettings(Settings):
    """The same, saved after some steps and loaded without what is forgotten."""

    stop_step: Count = 16
    forgets: Literal["nothing", "optimizer", "position"] = "nothing"

    def check(self) -> None:
        """Refuse to stop after the end."""
        if self.stop_step > self.num_steps:
            raise ValueError("stop_step lies beyond num_steps")


class ElasticSettings(Settings):
    """The same under the elastic launcher: which ranks die when, and from where all go on."""

    num_ranks: Count = 2
    checkpoint_every: Count = 8
    num_deaths: Count = 1
    moment: Literal["step", "save"] = "step"
    fault_seed: CountOrZero = 27

    @property
    def moments(self) -> range:
        """The steps before which, or in the saves after which, a rank can die."""
        every = self.checkpoint_every
        in_saves = range(every, self.num_steps + 1, every)
        return in_saves if self.moment == "save" else range(1, self.num_steps)

    def deaths(self) -> list[tuple[int, int]]:
        """The step and the rank of each death: all steps are drawn first, then the ranks."""
        source = random.Random(self.fault_seed)
        steps = sorted(source.sample(self.moments, self.num_deaths))
        # The first rank writes what makes a checkpoint whole: its death tears a save.
        in_save = self.moment == "save"
        return [(step, 0 if in_save else source.randrange(self.num_ranks)) for step in steps]

    def closed_forms(self) -> dict[str, Setting]:
        """The deaths, the steps from which training goes on, and the steps that are lost so."""
        steps = [step for step, _ in self.deaths()]
        every, in_save = self.checkpoint_every, self.moment == "save"
        saved = [(step - in_save) // every * every for step in steps]
        return {
            "death_steps": steps,
            "death_ranks": [rank for _, rank in self.deaths()],
            "last_saved_steps": saved,
            "num_steps_at_risk": sum(steps) - sum(saved),
        }

    def check(self) -> None:
        """Refuse more deaths than there are moments to die."""
        most = len(self.moments)
        if self.num_deaths > most:
            raise ValueError(f"num_deaths must be at most {most}: there are no more moments")


class ReplayedSettings(RunSettings):
    """A long training on paper: how often its machine fails."""

    mtbf_seconds: Count
    num_failures: Count = 5000
    fault_seed: CountOrZero = 1


def _plan(strategy: str, settings: RunSettings, ranks: int = 2, **more: Any) -> RunPlan:
    # The elastic launcher's ranks are on CPU; all must be comparable to the bit.
    plan: dict[str, Any] = {"passes": ("timed",), "has_timeline": False, "only_on_cpu": True}
    return RunPlan(strategy, ranks, settings, **plan, **more)


def _elastic(*, full: bool = False, **settings: Any) -> RunPlan:
    return _plan("elastic", ElasticSettings(**settings), 1, full=full)


def _replayed(seconds: int) -> RunPlan:
    settings = ReplayedSettings(mtbf_seconds=seconds)
    return _plan("replayed", settings, 1, nature="simulated", follows="killed")


RUNS = {
    "undisturbed": _plan("undisturbed", Settings()),
    "resumed": _plan("resumed", ResumedSettings()),
    "resumed_without_optimizer": _plan("resumed", ResumedSettings(forgets="optimizer")),
    "resumed_without_position": _plan("resumed", ResumedSettings(forgets="position")),
    "killed": _elastic(),
    "replayed_minute": _replayed(60),
    "replayed_hour": _replayed(3600),
    "killed_three_times": _elastic(num_deaths=3, fault_seed=9, full=True),
    "killed_while_saving": _elastic(moment="save", full=True),
    "killed_without_checkpoint": _elastic(checkpoint_every=31, full=True),
}
TRIED_WITH = {"killed_three_times": {"num_deaths": 1}}  # each start of the ranks takes seconds

if __name__ == "__main__":
    main()
