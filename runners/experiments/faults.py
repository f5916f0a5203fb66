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
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import fully_shard

from proofbook.runners.api import Count, CountOrZero, Declaration, Factor, RunSettings, Setting
from proofbook.runners.closed_forms import checkpoint_interval as on_paper
from proofbook.runners.closed_forms.training_settings import StackSettings
from proofbook.runners.training.networks import description
from proofbook.runners.training.rank import Rank, end_with, parameter_digest
from proofbook.runners.training.transfers import join_group


def main() -> None:
    """Be a rank, set by JSON in argv, till it dies or ends: load, train, save, note events."""
    attempt = Attempt(**json.loads(sys.argv[1]))
    attempt.load()
    attempt.note("resumed")
    while attempt.step < attempt.settings.num_steps:
        dist.barrier()  # all have got here: how many steps a death costs is the same each time
        attempt.die_if_due("step")
        start = time.perf_counter()
        attempt.take_step()
        attempt.note("step", seconds=time.perf_counter() - start)
        if attempt.step % attempt.settings.checkpoint_every == 0:
            start = time.perf_counter()
            attempt.save()
            attempt.note("saved", seconds=time.perf_counter() - start)
    attempt.note("ended", digest=parameter_digest(attempt.model.parameters()))
    dist.barrier()
    os._exit(0)


class ResumableTraining:
    """A model that lives as shards on all ranks of the group, its optimizer, and its next step.

    All that a step depends on is in the state or follows from the number of the step, samples too:
    so a training that is resumed can equal one that never stopped.
    """

    def __init__(self, settings: Settings, seed: int, folder: Path) -> None:
        self.settings, self.seed, self.folder = settings, seed, folder
        self.step = 0
        self.sampler_step = 0  # which samples come next: the number of the step, unless forgotten
        torch.manual_seed(seed)
        width = settings.width
        self.model = nn.Sequential(*[nn.Linear(width, width) for _ in range(settings.num_layers)])
        fully_shard(self.model)
        self.forget_optimizer()

    def take_step(self) -> None:
        """Take and count an Adam step on samples that seed, sampler step and rank decide."""
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

    def save(self) -> None:
        """Write a checkpoint of all ranks' shards and the step; a due death leaves it torn."""
        writer = FileSystemWriter(self.folder / f"step-{self.step:08}")
        finish = writer.finish

        def finish_at_last(*arguments: Any, **more: Any) -> None:
            self.die_if_due("save")  # all shards are written, and what makes them whole is not
            finish(*arguments, **more)

        writer.finish = finish_at_last  # type: ignore[method-assign]
        save(self._state(), storage_writer=writer)

    def die_if_due(self, moment: str) -> None:
        """End here, if this process is meant to; a training in peace never is."""

    def load(self) -> None:
        """Set model, optimizer and step from the newest whole checkpoint, if there is any."""
        # One rank writes the metadata last: a folder without it holds half a checkpoint.
        whole = [place.parent for place in self.folder.glob("step-*/.metadata")]
        newest = [max(whole, default=None)]
        dist.broadcast_object_list(newest)  # the first rank decides: others may see other files
        if newest[0] is None:
            return
        state = self._state()
        load(state, checkpoint_id=newest[0])
        model, optimizer = state["model"], state["optimizer"]
        set_state_dict(
            self.model, self.optimizer, model_state_dict=model, optim_state_dict=optimizer
        )
        self.step = self.sampler_step = state["step"]


def undisturbed(rank: Rank[Settings]) -> None:
    """From the first step to the last, with no checkpoint."""
    _train(rank, ResumableTraining(rank.settings, rank.seed, rank.scratch))


def resumed(rank: Rank[ResumedSettings]) -> None:
    """Train to `stop_step`, save, build anew, load, drop what is forgotten, train to the end."""
    training = ResumableTraining(rank.settings, rank.seed, rank.scratch)
    while training.step < rank.settings.stop_step:
        training.take_step()
    with rank.phase("save"):
        training.save()
    training = ResumableTraining(rank.settings, rank.seed, rank.scratch)
    with rank.phase("load"):
        training.load()
    if rank.settings.forgets == "optimizer":
        training.forget_optimizer()
    if rank.settings.forgets == "position":
        training.sampler_step = 0
    _train(rank, training)
    dist.barrier()


def _train(rank: Rank[Settings], training: ResumableTraining) -> None:
    """To the last step; the rank's clock reads each."""
    rank.describe(description(rank.settings.widths, rank.world_size, sharded=True))
    rank.watch(training.model, training.optimizer)
    for _ in rank.steps(rank.settings.num_steps - training.step):
        with rank.phase("step"):
            training.take_step()


# --- deaths under the elastic launcher


class Attempt(ResumableTraining):
    """One start of a rank's process, after as many deaths as its number says."""

    settings: ElasticSettings

    def __init__(self, folder: str, launcher: int, seed: int, settings: dict[str, Any]) -> None:
        self.rank = int(os.environ["RANK"])
        self.number = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        end_with(launcher)
        torch.set_num_threads(1)
        # A store of each attempt's own: what a dead attempt left behind would confuse the next.
        store = Path(folder) / f"store-{self.number}"
        join_group(store, self.rank, int(os.environ["WORLD_SIZE"]))
        super().__init__(ElasticSettings.from_json(settings), seed, Path(folder))

    def note(self, what: str, **more: Any) -> None:
        """Add a line to the events, at once and whole."""
        event = {"what": what, "attempt": self.number, "rank": self.rank, **more}
        with (self.folder / "events.jsonl").open("a") as events:
            events.write(json.dumps({"at": time.monotonic(), **event}) + "\n")

    def die_if_due(self, moment: str) -> None:
        """Leave where this attempt is to die: as a machine that loses power, without a word."""
        deaths = self.settings.deaths()[self.number : self.number + 1]
        if moment == self.settings.moment and (self.step, self.rank) in deaths:
            self.note("dies")
            os.kill(os.getpid(), signal.SIGKILL)


def elastic(rank: Rank[ElasticSettings]) -> None:
    """Run ranks under torchrun's elastic launcher; some die as planned. Record their events."""
    from torch.distributed.run import main as torchrun

    settings, folder = rank.settings, rank.scratch / "faults"
    folder.mkdir()
    rank.describe(description(settings.widths, settings.num_ranks, sharded=True))
    attempt = {"folder": str(folder), "launcher": os.getpid(), "seed": rank.seed}

    def beat() -> None:  # while the processes work that this rank has started
        while rank.phase_name == "elastic launcher":
            rank.beat()
            time.sleep(0.1)

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
                "proofbook.runners.experiments.faults",
                json.dumps({**attempt, "settings": settings.declared()}),
            ]
        )
    lines = (folder / "events.jsonl").read_text().splitlines()
    _record(rank, sorted(map(json.loads, lines), key=lambda event: event["at"]))


def _record(rank: Rank[ElasticSettings], events: list[dict[str, Any]]) -> None:
    """Record what the events show: steps lost, costs of checkpoints and restarts, the end."""

    def those(what: str) -> list[dict[str, Any]]:
        return [event for event in events if event["what"] == what]

    steps, saves = ([e["seconds"] for e in those(x) if e["rank"] == 0] for x in ("step", "saved"))
    rank.outcome.step_seconds = steps
    rank.measure_seconds("checkpoint", saves)
    # From each death to the moment at which all ranks have taken up the training again.
    taken_up = {e["attempt"]: e["at"] for e in those("resumed")}  # of each attempt's last rank
    deaths = [e for e in those("dies") if e["attempt"] + 1 in taken_up]
    rank.measure_seconds("restart", [taken_up[e["attempt"] + 1] - e["at"] for e in deaths])
    rank.measure("num_attempts", len(taken_up))
    rank.measure("num_steps_lost", len(steps) - rank.settings.num_steps)
    ended = sorted(those("ended"), key=lambda e: e["rank"])
    rank.measure("parameter_digests", [e["digest"] for e in ended], repeats="bits")
    last = max((rank.scratch / "faults").glob("step-*"), default=None)
    if last is not None:
        sizes = {file: file.stat().st_size for file in sorted(last.iterdir())}
        shards = [size for file, size in sizes.items() if file.suffix == ".distcp"]
        rank.measure("checkpoint_file_bytes", shards, unit="bytes")
        rank.measure("checkpoint_bytes", sum(sizes.values()), unit="bytes")


def replayed(rank: Rank[ReplayedSettings]) -> None:
    """Record a long training's seconds, simulated and predicted, at save intervals near Young's."""
    settings = rank.settings
    step, save, restart = (median(rank.followed[x]) for x in ("step", "checkpoint", "restart"))
    costs = on_paper.Costs(step, save, restart, settings.mtbf_seconds)
    work = costs.mtbf_seconds * settings.num_failures
    num_steps = round(work / step)

    def took(interval: float) -> tuple[float, float]:
        """Seconds of the training, replayed and in closed form."""
        between = max(1, round(interval / step))
        predicted = on_paper.expected_seconds(costs, between, num_steps)
        return on_paper.replay(costs, between, num_steps, settings.fault_seed), predicted

    young, daly = on_paper.young_seconds(costs), on_paper.daly_seconds(costs)
    # Powers of the root of two around Young's interval, which stands in the middle.
    around = [took(2 ** (power / 2) * young) for power in range(-6, 7)]
    seconds = [replayed for replayed, _ in around]
    rank.measure_seconds("replayed", seconds)
    rank.measure_seconds("predicted", [predicted for _, predicted in around])
    rank.measure_seconds("replayed_at_young", [took(young)[0]])
    rank.measure_seconds("lost_at_best", [min(seconds) - work])
    rank.measure_seconds("lost_at_young", [took(young)[0] - work])
    rank.measure_seconds("lost_at_daly", [took(daly)[0] - work])


QUESTION = "What does it take for a training run that was killed to end as if nothing had happened?"


class Settings(StackSettings):
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
        """Pairs (step, rank) of deaths, by step, drawn by `fault_seed`; in a save, rank 0 dies."""
        source = random.Random(self.fault_seed)
        every, in_save = self.checkpoint_every, self.moment == "save"
        moments = range(every, self.num_steps + 1, every) if in_save else range(1, self.num_steps)
        steps = sorted(source.sample(moments, self.num_deaths))
        # The first rank writes what makes a checkpoint whole: its death tears a save.
        return [(step, 0 if in_save else source.randrange(self.num_ranks)) for step in steps]

    def closed_forms(self) -> dict[str, Setting]:
        """By name, of the settings: steps of deaths, those last saved before, number lost."""
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


# The elastic launcher's ranks are on CPU; all must be comparable to the bit.
timed = partial(Declaration, passes=("timed",), only_on_cpu=True)
launched = partial(timed, "elastic", 1)
long = partial(timed, "replayed", 1, nature="simulated", follows="killed")
RUNS = {
    "undisturbed": timed("undisturbed", 2, Settings()),
    "resumed": timed("resumed", 2, ResumedSettings()),
    "resumed_without_optimizer": timed("resumed", 2, ResumedSettings(forgets="optimizer")),
    "resumed_without_position": timed("resumed", 2, ResumedSettings(forgets="position")),
    "killed": launched(ElasticSettings()),
    "replayed_minute": long(ReplayedSettings(mtbf_seconds=60)),
    "replayed_hour": long(ReplayedSettings(mtbf_seconds=3600)),
    "killed_three_times": launched(ElasticSettings(num_deaths=3, fault_seed=9), full=True),
    "killed_while_saving": launched(ElasticSettings(moment="save"), full=True),
    "killed_without_checkpoint": launched(ElasticSettings(checkpoint_every=31), full=True),
}
TRIED_WITH = {"killed_three_times": {"num_deaths": 1}}  # each start of the ranks takes seconds

if __name__ == "__main__":
    main()
