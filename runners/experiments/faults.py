"""A rank dies, and training goes on: under the elastic launcher, from a distributed checkpoint.

The same sharded training is left in peace, killed at a step that a seed decides and resumed, and
resumed with a part of its state forgotten. What a checkpoint and a restart cost is measured, and
then replayed over failure times of a long training: how often should one save?

    python -m runners run faults

Each rank that is killed is this file too, started by torchrun's elastic launcher (`main`).
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
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

from runners.plans import checkpoint_interval as on_paper
from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, CountOrZero, Factor, RunSettings
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.system.processes import end_with
from runners.traces.schema import Setting
from runners.training.networks import description


def main() -> None:
    """One rank from one death to the next: take up the last whole checkpoint, train, save."""
    attempt = Attempt(**json.loads(sys.argv[1]))
    settings = attempt.settings
    training = Training(settings, attempt.seed)
    training.load(attempt.folder)
    attempt.note("resumed", training.step)
    while training.step < settings.num_steps:
        dist.barrier()  # all have got here: how many steps a death costs is the same each time
        attempt.die_if_due("step", training.step)
        start = time.perf_counter()
        training.take_step()
        attempt.note("step", training.step, seconds=time.perf_counter() - start)
        if training.step % settings.checkpoint_every == 0:
            start = time.perf_counter()
            training.save(attempt.folder, lambda: attempt.die_if_due("save", training.step))
            attempt.note("saved", training.step, seconds=time.perf_counter() - start)
    attempt.note("ended", training.step, digest=parameter_digest(training.model.parameters()))
    dist.barrier()
    os._exit(0)


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
        number = self.seed + 1000 * self.sampler_step + dist.get_rank()
        source = torch.Generator().manual_seed(number)
        samples = torch.randn(self.settings.batch_size, self.settings.width, generator=source)
        nn.functional.mse_loss(self.model(samples), samples.flip(1)).backward()
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

    def save(self, folder: Path, at_worst: Callable[[], None] = lambda: None) -> None:
        """Write a checkpoint: every rank its shards of parameters and of the optimizer's state.

        Args:
            folder: where checkpoints lie, each in a folder of its own.
            at_worst: called at the worst moment: all shards are written, and what says so is not.
        """

        class Writer(FileSystemWriter):
            def finish(self, *arguments: Any, **more: Any) -> None:
                at_worst()
                super().finish(*arguments, **more)

        save(self._state(), storage_writer=Writer(folder / f"step-{self.step:06}"))

    def load(self, folder: Path) -> None:
        """Go on from the newest checkpoint that is whole, if there is one."""
        # One rank writes the metadata last: a folder without it holds half a checkpoint.
        whole = [place.parent for place in folder.glob("step-*/.metadata")]
        if not whole:
            return
        state = self._state()
        load(state, checkpoint_id=max(whole))
        model, optimizer = state["model"], state["optimizer"]
        set_state_dict(
            self.model, self.optimizer, model_state_dict=model, optim_state_dict=optimizer
        )
        self.step = self.sampler_step = state["step"]


def undisturbed(rank: Rank[Settings]) -> None:
    """From the first step to the last, with no checkpoint."""
    _train(rank, Training(rank.settings, rank.seed))


def resumed(rank: Rank[ResumedSettings]) -> None:
    """Saved after some steps, built anew, loaded and gone on; without what is forgotten."""
    training = Training(rank.settings, rank.seed)
    while training.step < rank.settings.stop_step:
        training.take_step()
    with rank.phase("save"):
        training.save(rank.scratch)
    training = Training(rank.settings, rank.seed)
    with rank.phase("load"):
        training.load(rank.scratch)
    if rank.settings.forgets == "optimizer":
        training.forget_optimizer()
    if rank.settings.forgets == "position":
        training.sampler_step = 0
    _train(rank, training)
    dist.barrier()


def _train(rank: Rank[Settings], training: Training) -> None:
    """To the last step; the rank's clock reads each."""
    _describe(rank, rank.world_size)
    rank.watch(training.model, training.optimizer)
    for _ in rank.steps(rank.settings.num_steps - training.step):
        with rank.phase("step"):
            training.take_step()


def _describe(rank: Rank[Settings], num_ranks: int) -> None:
    num_layers = rank.settings.num_layers
    widths = [rank.settings.width] * (num_layers + 1)
    rank.describe(description(widths, [range(num_ranks)] * num_layers, sharded=[True] * num_layers))


# --- deaths under the elastic launcher


class Attempt:
    """One start of a rank's process, after as many deaths as its number says."""

    def __init__(self, folder: str, launcher: int, seed: int, settings: dict[str, Any]) -> None:
        self.folder, self.seed = Path(folder), seed
        self.settings = ElasticSettings.from_json(settings)
        self.rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.number = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        end_with(launcher)
        torch.set_num_threads(1)
        # A store of each attempt's own: what a dead attempt left behind would confuse the next.
        store = FileStore(str(self.folder / f"store-{self.number}"), world_size)
        patience = timedelta(seconds=60)  # of a collective in which a rank is missing
        dist.init_process_group(
            "gloo", store=store, rank=self.rank, world_size=world_size, timeout=patience
        )

    def note(self, what: str, step: int, **more: Any) -> None:
        """Add a line to the events, at once and whole."""
        event = {"what": what, "step": step, "attempt": self.number, "rank": self.rank, **more}
        with (self.folder / "events.jsonl").open("a") as events:
            events.write(json.dumps({"at": time.monotonic(), **event}) + "\n")

    def die_if_due(self, moment: str, step: int) -> None:
        """Leave where this attempt is to die: as a machine that loses power, without a word."""
        deaths = self.settings.deaths()[self.number : self.number + 1]
        if moment == self.settings.moment and (step, self.rank) in deaths:
            self.note("dies", step)
            os.kill(os.getpid(), signal.SIGKILL)


def elastic(rank: Rank[ElasticSettings]) -> None:
    """Ranks of the elastic launcher train, die as planned, and are started again."""
    from torch.distributed.run import main as torchrun

    settings, folder = rank.settings, rank.scratch / "faults"
    folder.mkdir()
    _describe(rank, settings.num_ranks)
    attempt = {"folder": str(folder), "launcher": os.getpid(), "seed": rank.seed}
    is_over = threading.Event()

    def beat() -> None:  # while the processes work that this rank has started
        while not is_over.wait(0.1):
            rank.beat()

    with rank.phase("elastic launcher"):
        threading.Thread(target=beat, daemon=True).start()
        torchrun(
            [
                "--standalone",
                f"--nproc-per-node={settings.num_ranks}",
                f"--max-restarts={settings.num_deaths + 3}",  # some for deaths that nobody planned
                "--monitor-interval=0.05",
                f"--log-dir={folder / 'log'}",
                "--module",
                "runners.experiments.faults",
                json.dumps({**attempt, "settings": settings.declared()}),
            ]
        )
        is_over.set()
    lines = (folder / "events.jsonl").read_text().splitlines()
    _record(rank, sorted(map(json.loads, lines), key=lambda event: event["at"]))


def _record(rank: Rank[ElasticSettings], events: list[dict[str, Any]]) -> None:
    """Record what the events show: steps lost, costs of checkpoints and restarts, the end."""
    by_kind: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        by_kind[event["what"]].append(event)
    resumed, ended = by_kind["resumed"], sorted(by_kind["ended"], key=lambda e: e["rank"])
    steps = [e["seconds"] for e in by_kind["step"] if e["rank"] == 0]
    rank.outcome.step_seconds = steps
    saves = [e["seconds"] for e in by_kind["saved"] if e["rank"] == 0]
    rank.measure_seconds("checkpoint", saves)
    # From each death to the moment at which all ranks have taken up the training again.
    taken_up = {e["attempt"]: e["at"] for e in resumed}  # of the last rank of each attempt
    deaths = [(e["at"], taken_up.get(e["attempt"] + 1)) for e in by_kind["dies"]]
    rank.measure_seconds("restart", [after - at for at, after in deaths if after is not None])
    rank.measure("num_attempts", len(taken_up))
    rank.measure("num_steps_lost", len(steps) - ended[0]["step"])
    rank.measure("parameter_digests", [e["digest"] for e in ended])
    last = max((rank.scratch / "faults").glob("step-*"), default=None)
    if last is not None:
        sizes = {file: file.stat().st_size for file in sorted(last.iterdir())}
        shards = [size for file, size in sizes.items() if file.suffix == ".distcp"]
        rank.measure("checkpoint_file_bytes", shards)
        rank.measure("checkpoint_bytes", sum(sizes.values()))


def replayed(rank: Rank[ReplayedSettings]) -> None:
    """A long training on paper: measured costs, seeded failures, intervals around Young's."""
    settings, measured = rank.settings, rank.followed
    step = median(measured["step"])
    checkpoint, restart = median(measured["checkpoint"]), median(measured["restart"])
    costs = on_paper.Costs(step, checkpoint, restart, settings.mtbf_seconds)
    work = costs.mtbf_seconds * settings.num_failures
    num_steps = round(work / step)

    def between(interval: float) -> int:
        return max(1, round(interval / step))

    def took(num_steps_between: int) -> float:
        return on_paper.replay(costs, num_steps_between, num_steps, settings.fault_seed)

    young_interval = on_paper.young_seconds(costs)
    # Powers of the root of two around Young's interval, which stands in the middle.
    around = [between(2 ** (power / 2) * young_interval) for power in range(-6, 7)]
    seconds = [took(one) for one in around]
    young, daly = seconds[len(seconds) // 2], took(between(on_paper.daly_seconds(costs)))
    predicted = [on_paper.expected_seconds(costs, one, num_steps) for one in around]
    rank.measure_seconds("replayed", seconds)
    rank.measure_seconds("predicted", predicted)
    rank.measure_seconds("replayed_at_young", [young])
    for name, one in {"best": min(seconds), "young": young, "daly": daly}.items():
        rank.measure_seconds(f"lost_at_{name}", [one - work])


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


class ElasticSettings(Settings):
    """The same under the elastic launcher: which ranks die when, and from where all go on."""

    num_ranks: Count = 2
    checkpoint_every: Count = 8
    num_deaths: Count = 1
    moment: Literal["step", "save"] = "step"
    fault_seed: CountOrZero = 27

    def deaths(self) -> list[tuple[int, int]]:
        """The step and the rank of each death: all steps are drawn first, then the ranks."""
        source = random.Random(self.fault_seed)
        every, in_save = self.checkpoint_every, self.moment == "save"
        moments = range(every, self.num_steps + 1, every) if in_save else range(1, self.num_steps)
        steps = sorted(source.sample(moments, self.num_deaths))
        # The first rank writes what makes a checkpoint whole: its death tears a save.
        return [(step, 0 if in_save else source.randrange(self.num_ranks)) for step in steps]

    def closed_forms(self) -> dict[str, Setting]:
        """The deaths, the steps from which training goes on, and the steps that are lost so."""
        steps = [step for step, _ in self.deaths()]
        every, in_save = self.checkpoint_every, self.moment == "save"
        saved = [(step - in_save) // every * every for step in steps]
        at_risk = sum(steps) - sum(saved)
        return {"death_steps": steps, "last_saved_steps": saved, "num_steps_at_risk": at_risk}


class ReplayedSettings(RunSettings):
    """A long training on paper: how often its machine fails."""

    mtbf_seconds: Count
    num_failures: Count = 5000
    fault_seed: CountOrZero = 1


def _plan(strategy: str, settings: RunSettings, ranks: int = 2, **more: Any) -> RunPlan:
    # The elastic launcher's ranks are on CPU; all must be comparable to the bit.
    plan: dict[str, Any] = {"passes": ("timed",), "only_on_cpu": True}
    return RunPlan(strategy, ranks, settings, **plan, **more)


def _elastic(**settings: Any) -> RunPlan:
    return _plan("elastic", ElasticSettings(**settings), 1, full=bool(settings))


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
    "killed_three_times": _elastic(num_deaths=3, fault_seed=9),
    "killed_while_saving": _elastic(moment="save"),
    "killed_without_checkpoint": _elastic(checkpoint_every=31),
}
TRIED_WITH = {"killed_three_times": {"num_deaths": 1}}  # each start of the ranks takes seconds

if __name__ == "__main__":
    main()
