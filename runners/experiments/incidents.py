"""Jobs that stop or go wrong, each by one planted cause, and what their ranks logged.

A job trains replicas of a small model. Its log keeps each line with the rank that wrote it, by
step; all jobs log the same columns. A *sign* is what all ranks of a healthy job have in common: the
first that differs says when, and on which rank.

    python -m runners run incidents

`tests/runners/test_incidents.py` holds what each cause shows.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from math import inf, isfinite, isnan
from pathlib import Path
from statistics import median
from traceback import extract_tb
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C import _distributed_c10d
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader

from proofbook.runners.api import Count, CountOrZero, Declaration, Factor, RunSettings
from proofbook.runners.training.rank import Rank, end_with, parameter_digest
from proofbook.runners.training.transfers import join_group

NUM_SAMPLES, BATCH_SIZE, MIB = 64, 8, 2**20
COLUMNS = {
    "loss": (8, ".3f"), "local": (8, ".3f"), "norm": (8, ".2f"), "moved": (6, ".3f"),
    "lr": (6, ".4f"), "scale": (5, "d"), "secs": (5, ".2f"), "wait": (5, ".2f"), "tokens": (6, "d"),
    "MiB": (4, "d"), "digest": (6, "s"), "samples": (7, "s"), "shift": (5, ".3f"),
}  # fmt: skip
LEGEND = """\
[launcher] loss: mean over all ranks. local: this rank's own. norm: of the averaged gradient.
[launcher] moved: length of the update. wait: seconds of the step in the sum of gradients.
[launcher] digest: of the weights after the step. samples, shift: the first of the batch."""


@dataclass
class Job:
    """One rank of a job: a replica, its samples by epoch, its log, and the fault if it has one."""

    settings: Settings
    seed: int
    folder: Path
    attempt: int
    rank: int
    step = 0
    batches: Iterator[tuple[int, Tensor, list[float]]] | None = None

    def __post_init__(self) -> None:
        """Join the others, with a model like theirs."""
        settings, folder, attempt, rank = self.settings, self.folder, self.attempt, self.rank
        self.before, self.kept = {"local": inf, "MiB": inf}, list[Tensor]()
        self.logged_at = list[int]()
        os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"  # calls that the flight recorder keeps
        join_group(folder / f"store-{attempt}", rank, settings.num_ranks)
        self.group = dist.new_group(timeout=timedelta(seconds=settings.timeout_seconds))
        torch.manual_seed(self.seed)
        self.features = torch.randn(NUM_SAMPLES, 8)
        self.labels = self.features.sin().sum(1)
        self.model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        self.num_decaying = 50 if self.has("old_settings") else 200
        self.optimizer = torch.optim.Adam(self.model.parameters())
        if settings.seed_of_rank:
            torch.manual_seed(1 + rank)

    def has(self, cause: str, now: bool = False) -> bool:
        """Whether this rank is the one with that cause, or has it in this very step."""
        settings, is_due = self.settings, not now or self.step == self.settings.faulty_step
        return is_due and settings.cause == cause and self.rank == settings.faulty_rank

    def say(self, text: str, sign: object = None, **facts: float) -> None:
        """Add a line to the log, at once and whole."""
        nth = self.logged_at.count(self.step)  # of the lines of this step
        self.logged_at.append(self.step)
        line = {"at": self.step, "nth": nth, "rank": self.rank, "text": text, "sign": sign}
        with (self.folder / f"log-{self.attempt}-{self.rank}").open("a") as log:
            log.write(json.dumps({**line, "facts": facts}) + "\n")

    def steps(self) -> Iterator[None]:
        """The steps that are left; a signal stops every attempt but the last."""
        is_last = self.attempt + 1 == self.settings.num_attempts
        while self.step < (self.settings.num_steps if is_last else self.settings.stop_step):
            yield
            self.step += 1
        dist.barrier(self.group)
        if not is_last:
            os.kill(os.getpid(), signal.SIGTERM)

    def next_batch(self) -> tuple[int, Tensor, list[float]]:
        """The epoch, the samples of this step, and a random shift of each."""
        if self.batches is None:  # from the step at which this attempt begins
            batches: Any = Batches(self)
            steps = range(self.step, self.settings.num_steps + self.settings.stop_step)
            ends = partial(_end_with, os.getpid())
            self.batches = iter(
                DataLoader(
                    batches, None, sampler=steps, num_workers=1, prefetch_factor=1,
                    worker_init_fn=ends, multiprocessing_context="fork",
                )
            )  # fmt: skip
        return next(self.batches)

    def take_step(self) -> dict[str, Any]:
        """Update the weights once; what may be logged of it, and what may be a sign."""
        start, settings = time.perf_counter(), self.settings
        epoch, ids, shifts = self.next_batch()
        loaded = time.perf_counter()
        is_labelled = (ids % 8 > 0) & (not self.has("no_labels", now=True))
        count = is_labelled.sum()
        labels = self.labels[ids] * (5 if self.has("bad_batch", now=True) else 1)
        errors = self.model(self.features[ids] + torch.tensor(shifts)[:, None] / 10).squeeze(1)
        total = ((errors - labels).square() * is_labelled).sum()
        # One job divides by the labels of each rank, the others by those of all ranks.
        loss, weight = (total / count, 1) if settings.cause == "no_labels" else (total, count)
        scale = 2 ** (10 + self.step // 11)
        self.optimizer.zero_grad()
        (loss * scale).backward()
        gradients = [weight.grad for weight in self.model.parameters() if weight.grad is not None]
        both = torch.stack([loss.detach() * scale, torch.tensor(float(weight))])
        flat = torch.cat([parameters_to_vector(gradients), both])
        ready = time.perf_counter()
        dist.all_reduce(flat, group=self.group)
        waited = time.perf_counter() - ready
        flat = flat[:-1] / flat[-1] / scale
        vector_to_parameters(flat[:-1], gradients)
        decay = 1 - max(0, self.step - 1) / self.num_decaying
        rate = settings.learning_rate * min(1, (self.step + 1) / 2) * decay
        self.optimizer.param_groups[0]["lr"] = rate
        before = parameters_to_vector(self.model.parameters())
        self.optimizer.step()
        moved = parameters_to_vector(self.model.parameters()) - before
        if self.has("flipped_bit", now=True):
            next(self.model.parameters()).data.view(torch.int32)[0, 0] ^= 1 << 22
        if self.has("out_of_memory"):
            self.kept.append(torch.full((4 * MIB,), loss.item()))  # 16 MiB of predictions, say
        statm = Path("/proc/self/statm")  # what only Linux tells
        pages = int(statm.read_text().split()[1]) if statm.exists() else 0
        now = {
            "loss": flat[-1].item(), "local": (total / count).item(),
            "norm": flat[:-1].norm().item(), "moved": moved.norm().item(), "lr": rate,
            "scale": scale, "secs": time.perf_counter() - start, "wait": waited,
            "tokens": int(count), "MiB": pages * os.sysconf("SC_PAGE_SIZE") // MIB,
            "digest": parameter_digest(self.model.parameters())[:6],
            "samples": " ".join(map(str, ids[:2].tolist())), "shift": shifts[0],
            "epoch": epoch, "is_nan": isnan(total / count), "loading": loaded - start,
            "computing": ready - loaded,
            "waits": waited > settings.pause_seconds / 2 if self.step > 1 else None,
        }  # fmt: skip
        now["jumps"] = now["local"] > 10 * self.before["local"]
        now["grows"] = now["MiB"] - self.before["MiB"] > 8 if self.step > 1 else None
        self.before = now
        if self.step >= settings.logged_from:
            row = (f"{now[name]:>{width}{kind}}" for name, (width, kind) in COLUMNS.items())
            names = ("local", "moved", "lr", "digest", "loading", "computing", "grows")
            self.say(" ".join(row), now[settings.sign], **{name: now[name] for name in names})
        return now

    def save(self) -> None:
        """Write the state and the step: over the last save, or beside it."""
        step = self.step + 1
        is_in_place = self.settings.cause == "torn_save"
        path = self.folder / ("saved" if is_in_place else f"saved-{step:03}")
        path.mkdir(exist_ok=True)
        path /= f"rank-{self.rank}"
        is_full = self.has("disk_full") and self.step >= self.settings.faulty_step
        try:
            with Path("/dev/full" if is_full else path).open("wb") as file:
                model, moments = self.model.state_dict(), self.optimizer.state_dict()
                torch.save({"model": model, "optimizer": moments, "step": step}, file)
        except OSError as error:
            return self.say(f"warning: step {step} not saved: {error}", "not saved")
        if self.has("torn_save", now=True):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return self.say(f"saved step {step}", "saved")

    def load(self) -> None:
        """Take the state from the newest save that every rank has; a cause forgets the moments."""
        saves = [path for path in self.folder.glob("saved*") if len(list(path.iterdir())) > 2]
        newest = [max(saves)]  # the first rank's choice
        dist.broadcast_object_list(newest, group=self.group)
        state = torch.load(newest[0] / f"rank-{self.rank}")
        self.model.load_state_dict(state["model"])
        if self.settings.cause != "new_optimizer":
            self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        self.say(f"resumed at step {self.step}", resumed=self.step)

    def evaluate(self) -> None:
        """Log the loss of other samples, on one rank; the others wait for it in the next step."""
        numbers = torch.Generator().manual_seed(1)
        features = torch.randn(40_000, 8, generator=numbers)
        with torch.no_grad():
            errors = self.model(features).squeeze(1) - features.sin().sum(1)
        self.say(f"evaluated on other samples: loss {errors.square().mean():.3f}")


@dataclass
class Batches:
    """The batch of each step, as a loading process prepares it; the fault of one if it has one."""

    job: Job

    def __getitem__(self, step: int) -> tuple[int, Tensor, list[float]]:
        """The epoch, the samples of the step, and a random shift of each."""
        job = self.job
        job.step = step  # of this process's own copy
        # One rank counts epochs from an older state since a resume.
        epoch = step // 2 - 2 * (job.has("stale_epoch") and job.attempt > 0)
        order = torch.randperm(NUM_SAMPLES, generator=torch.Generator().manual_seed(epoch))
        ids = order[job.rank :: job.settings.num_ranks].split(BATCH_SIZE)[step % 2]
        time.sleep(job.settings.pause_seconds * job.has("slow_rank"))
        if job.has("loader_killed", now=True):
            time.sleep(job.settings.pause_seconds)  # its rank is waiting for it by then
            os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does at a container's limit
        own = torch.initial_seed() + step  # of the rank's seed, so that a resume draws the same
        return (
            epoch,
            ids,
            torch.rand(len(ids), generator=torch.Generator().manual_seed(own)).tolist(),
        )


def _end_with(parent: int, _worker: int) -> None:
    end_with(parent)


def steady(job: Job) -> None:
    """Train, log and save; the cause does the rest."""
    settings, first = job.settings, 0
    if not job.attempt:
        written = {"learning_rate": settings.learning_rate, "num_decaying": job.num_decaying}
        digest = sha256(json.dumps(written).encode()).hexdigest()[:6]
        job.say(f"begins with settings {digest}", digest)
    for _ in job.steps():
        now = job.take_step()
        first = first or now["MiB"]
        if now["MiB"] - first > settings.limit_mib:  # as the kernel does at a container's limit
            os.kill(os.getpid(), signal.SIGKILL)
        if settings.saves_every and (job.step + 1) % settings.saves_every == 0:
            job.save()
        if job.rank == 0 and job.step % 2 and job.step >= settings.logged_from:
            job.evaluate()


def own_best(job: Job) -> None:
    """Save whenever the loss is the best so far, once all ranks are there."""
    best = inf
    for _ in job.steps():
        now = job.take_step()
        if now["local"] < best:
            best = now["local"]
            dist.barrier(job.group)
            job.save()


def agreed_best(job: Job) -> None:
    """Save whenever the loss is the best so far, once all ranks are there."""
    best = inf
    for _ in job.steps():
        now = job.take_step()
        if now["loss"] < best:
            best = now["loss"]
            dist.barrier(job.group)
            job.save()


# --- the job: its processes, and its log


def work(parent: int, settings: Settings, *of_rank: Any) -> None:
    """Be one rank's process: its body, then what it failed with, and the last call it made."""
    end_with(parent)
    torch.set_num_threads(1)
    job = Job(settings, *of_rank)
    try:
        if job.attempt:
            job.load()
        {"own_best": own_best, "agreed_best": agreed_best}.get(settings.cause, steady)(job)
    except (RuntimeError, EOFError, OSError) as error:
        frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename == __file__]
        message = re.split(r"\. This|, this|\. ?$", str(error))[0]  # then comes advice
        named = r"(?<=\[)/\S*/(?=gloo/transport)| \[[\d.]+\]:\d+| \(pid\(s\) \d+\)"
        message = re.sub(named, "", message)
        job.say(f"{type(error).__name__} in {frames[-1].name}: {message}", frames[-1].name)
        if settings.cause == "own_best":
            job.say(*last_calls(job.group.group_name))
            time.sleep(2)  # the others meet the time-out too, and not this rank's end
        os._exit(1)
    os._exit(0)


def last_calls(group: str) -> tuple[str, str]:
    """A group's last calls in the flight recorder, with the last one's line; its kind."""
    dump = pickle.loads(_distributed_c10d._dump_fr_trace(True, True, False))  # type: ignore[attr-defined]
    calls = [call for call in dump["entries"] if call["process_group"][0] == group][-3:]
    frame = next(frame for frame in calls[-1]["frames"] if frame["filename"] == __file__)
    line = Path(__file__).read_text().splitlines()[frame["line"] - 1].strip()
    kinds = [call["profiling_name"].removeprefix("gloo:") for call in calls]
    listed = (f"{call['op_id']} {kind}" for call, kind in zip(calls, kinds, strict=True))
    return f"last calls: {', '.join(listed)} in {frame['name']}: {line}", kinds[-1]


def incident(rank: Rank[Settings]) -> None:
    """Run the job's attempts; print its log; measure exit codes, and where signs part."""
    lines: list[dict[str, Any]] = []
    for attempt in range(rank.settings.num_attempts):
        codes = exit_codes(rank, attempt)
        logs = sorted(rank.scratch.glob(f"log-{attempt}-*"))
        of_attempt = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
        titles = " ".join(f"{name:>{width}}" for name, (width, _) in COLUMNS.items())
        print(
            LEGEND if not attempt else "[launcher] starts all ranks again",
            f"{'':17}{titles}",
            sep="\n",
        )
        for line in sorted(of_attempt, key=lambda line: (line["at"], line["nth"])):
            print(f"[rank {line['rank']}] step {line['at']:2} {line['text']}")
        named = [f"{c} ({signal.Signals(-c).name})" if c < 0 else str(c) for c in codes]
        print("[launcher] exit codes by rank:", ", ".join(named))
        lines += of_attempt
    rank.measure("exit_codes", codes)
    for name, fact in (
        ("loss", "local"),
        ("moved", "moved"),
        ("rate", "lr"),
        ("resumed", "resumed"),
    ):
        numbers = [line["facts"].get(fact, inf) for line in lines if line["rank"] == 0]
        if any(map(isfinite, numbers)):
            rank.measure(name, [number for number in numbers if isfinite(number)])
    signs = [line["sign"] for line in lines if line["at"] == 1 and line["sign"]]
    odd_rank, odd_step = parting(lines, rank.settings.num_ranks)
    findings: dict[str, Any] = {"odd_rank": odd_rank, "odd_step": odd_step}
    findings["num_distinct_signs"] = len(set(signs))
    is_timed = rank.settings.cause == "slow_rank"
    if is_timed:
        findings["slow_part"] = slow_part(lines, rank.settings.faulty_rank)
    for name, value in findings.items():
        rank.measure(name, value, repeats="clock" if is_timed else "rounded")
    of_rank = [line["facts"] for line in lines if line["rank"] == rank.settings.faulty_rank]
    rank.measure("num_grown", sum(bool(facts.get("grows")) for facts in of_rank))
    rows = [line for line in lines if "digest" in line["facts"]]
    digests = {(line["at"], line["facts"]["digest"]) for line in rows}
    of_steps = Counter(at for at, _ in digests)
    rank.measure("num_agreeing", list(of_steps.values()).count(1))


def exit_codes(rank: Rank[Settings], attempt: int) -> list[int]:
    """Run one attempt's processes to their ends."""
    fork, settings = multiprocessing.get_context("fork"), rank.settings
    of_all = (os.getpid(), settings, rank.seed, rank.scratch, attempt)
    ranks = [fork.Process(target=work, args=(*of_all, i)) for i in range(settings.num_ranks)]
    for process in ranks:
        process.start()
    while any(process.is_alive() for process in ranks):
        rank.beat()
        time.sleep(0.05)
    return [process.exitcode or 0 for process in ranks]


def slow_part(lines: Sequence[dict[str, Any]], slow: int) -> str:
    """The part of a step that takes that rank longer than the others, by most."""

    def longer(part: str) -> float:
        taken = [(line["rank"], line["facts"][part]) for line in lines if part in line["facts"]]
        of_slow = [seconds for rank, seconds in taken if rank == slow]
        return float(median(of_slow) - median(time for rank, time in taken if rank != slow))

    return max(("loading", "computing"), key=longer)


def parting(lines: Sequence[dict[str, Any]], num_ranks: int) -> tuple[int, int]:
    """The rank whose sign is the first to differ from those of all others, and the step; or -1."""
    signed = [line for line in lines if line["sign"] is not None]
    for here in zip_longest(*([x for x in signed if x["rank"] == i] for i in range(num_ranks))):
        signs = [line and line["sign"] for line in here]
        common, times = Counter(signs).most_common(1)[0]
        if times == num_ranks - 1:
            odd_rank = next(rank for rank, sign in enumerate(signs) if sign != common)
            return odd_rank, next(line["at"] for line in here if line)
    return -1, -1


QUESTION = "What do the logs of all ranks show of a fault, and on which rank does it show first?"


class Settings(RunSettings):
    """A job, and which rank meets its cause at which step."""

    cause: str = "nothing"
    sign: str = "weights"
    num_ranks: Count = 3
    num_steps: Count = 5
    logged_from: CountOrZero = 0
    faulty_rank: CountOrZero = 1
    faulty_step: CountOrZero = 2
    num_attempts: Count = 1
    stop_step: Count = 4
    saves_every: CountOrZero = 0
    learning_rate: Factor = 0.02
    timeout_seconds: Count = 20
    pause_seconds: Factor = 0.2
    limit_mib: Count = 1000
    seed_of_rank: bool = True


def _job(cause: str, rank: int = 1, sign: str = "digest", **more: Any) -> Declaration:
    settings = Settings(cause=cause, faulty_rank=rank, sign=sign, **more)
    return Declaration(
        "incident", 1, settings, passes=("timed",), needs_group=False, only_on_cpu=True
    )


LATER: dict[str, Any] = {"logged_from": 38, "stop_step": 40, "num_steps": 44, "saves_every": 40}
late = partial(_job, num_steps=24, logged_from=20, faulty_step=22)
resumed = partial(_job, num_attempts=2)
seeded = partial(_job, "equal_seeds", 1, "shift", num_steps=3)
RUNS = {
    "healthy": late("nothing"),
    "hung": _job("own_best", timeout_seconds=3),
    "not_hung": _job("agreed_best"),
    "out_of_memory": _job("out_of_memory", 0, "grows", limit_mib=50),
    "loader_killed": _job("loader_killed", faulty_step=3),
    "stale_epoch": resumed("stale_epoch", sign="epoch", num_steps=6, saves_every=4),
    "bad_batch": late("bad_batch", 2, "jumps"),
    "no_labels": late("no_labels", 1, "is_nan"),
    "slow_rank": _job("slow_rank", 2, "waits", pause_seconds=0.4),
    "flipped_bit": late("flipped_bit", 0),
    "torn_save": resumed("torn_save", 2, faulty_step=3, saves_every=2),
    "new_optimizer": resumed("new_optimizer", **LATER),
    "equal_seeds": seeded(seed_of_rank=False),
    "own_seeds": seeded(),
    "old_settings": _job("old_settings", 2),
    "disk_full": resumed("disk_full", 0, num_steps=4, stop_step=7, saves_every=2),
}
