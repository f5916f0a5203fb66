"""Jobs that stop or go wrong, each by one planted cause, and what their ranks logged.

A job trains replicas of a small model. Its log keeps each line with the rank that wrote it, by
step. A *sign* is what all ranks of a healthy job have in common: the first that differs says when,
and on which rank.

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


@dataclass
class Job:
    """One rank of a job: a replica, its samples by epoch, its log, and the fault if it has one."""

    settings: Settings
    seed: int
    folder: Path
    attempt: int
    rank: int
    step = 0

    def __post_init__(self) -> None:
        """Join the others, with a model like theirs."""
        settings, folder, attempt, rank = self.settings, self.folder, self.attempt, self.rank
        self.before, self.kept = {"loss": inf, "MiB": inf}, list[Tensor]()
        self.logged_at = list[int]()
        os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"  # calls that the flight recorder keeps
        join_group(folder / f"store-{attempt}", rank, settings.num_ranks)
        self.group = dist.new_group(timeout=timedelta(seconds=settings.timeout_seconds))
        torch.manual_seed(self.seed)
        self.features = torch.randn(NUM_SAMPLES, 8)
        self.labels = self.features.sin().sum(1)
        self.model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        self.rate = settings.learning_rate * (2 if self.has("old_settings") else 1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.rate)
        if settings.seed_of_rank:
            torch.manual_seed(rank)

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

    def take_step(self) -> dict[str, Any]:
        """Update the weights once; what may be logged of it, and what may be a sign."""
        start = time.perf_counter()
        # One rank counts epochs from an older state since a resume.
        epoch = self.step // 2 - 2 * (self.has("stale_epoch") and self.attempt > 0)
        order = torch.randperm(NUM_SAMPLES, generator=torch.Generator().manual_seed(epoch))
        ids = order[self.rank :: self.settings.num_ranks].split(BATCH_SIZE)[self.step % 2]
        time.sleep(self.settings.pause_seconds * self.has("slow_rank"))
        ready = time.perf_counter()
        if self.settings.cause == "slow_rank":
            dist.barrier(self.group)  # where its gradients would meet theirs
        waited = time.perf_counter() - ready
        is_labelled = torch.full((BATCH_SIZE,), float(not self.has("no_labels", now=True)))
        labels = self.labels[ids] * (20 if self.has("bad_batch", now=True) else 1)
        errors = self.model(self.features[ids]).squeeze(1) - labels
        loss = (errors.square() * is_labelled).sum() / is_labelled.sum()
        self.optimizer.zero_grad()
        loss.backward()
        gradients = [weight.grad for weight in self.model.parameters() if weight.grad is not None]
        flat = parameters_to_vector(gradients) / self.settings.num_ranks
        dist.all_reduce(flat, group=self.group)
        vector_to_parameters(flat, gradients)
        before = parameters_to_vector(self.model.parameters())
        self.optimizer.step()
        moved = parameters_to_vector(self.model.parameters()) - before
        if self.has("flipped_bit", now=True):
            next(self.model.parameters()).data.view(torch.int32)[0, 0] ^= 1 << 22
        if self.has("out_of_memory"):
            self.kept.append(torch.full((4 * MIB,), loss.item()))  # 16 MiB of predictions, say
        counts = self.settings.cause == "out_of_memory"  # what only Linux tells
        pages = int(Path("/proc/self/statm").read_text().split()[1]) if counts else 0
        now = {
            "loss": loss.item(), "gradient": flat.norm().item(), "moved": moved.norm().item(),
            "weights": parameter_digest(self.model.parameters())[:6], "rate": self.rate,
            "labels": int(is_labelled.sum()), "samples": " ".join(map(str, ids[:3].tolist())),
            "MiB": pages * os.sysconf("SC_PAGE_SIZE") // MIB, "waiting": waited,
            "seconds": time.perf_counter() - start, "epoch": epoch, "is_nan": isnan(loss.item()),
            "waits": waited > self.settings.pause_seconds / 2 if self.step else None,
        }  # fmt: skip
        now["jumps"] = now["loss"] > 10 * self.before["loss"]
        now["grows"] = now["MiB"] - self.before["MiB"] > 8 if self.step else None
        self.before = now
        return now

    def mean_of_ranks(self, number: float) -> float:
        """The mean of a number of each rank."""
        total = torch.tensor(number)
        dist.all_reduce(total, group=self.group)
        return total.item() / self.settings.num_ranks

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
        files = [path for path in self.folder.glob("saved*/*") if path.name == f"rank-{self.rank}"]
        num_ranks = self.settings.num_ranks
        whole = [path for path in files if len(list(path.parent.iterdir())) == num_ranks]
        state = torch.load(max(whole))
        self.model.load_state_dict(state["model"])
        if self.settings.cause != "new_optimizer":
            self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        self.say(f"resumed at step {self.step}", resumed=self.step)


def steady(job: Job) -> None:
    """Train, log what the settings name, and save; the cause does the rest."""
    settings, first = job.settings, 0
    if not job.attempt:
        digest = sha256(json.dumps({"learning_rate": job.rate}).encode()).hexdigest()[:6]
        job.say(f"begins with settings {digest}", digest)
    for _ in job.steps():
        now = job.take_step()
        if settings.cause == "equal_seeds":  # a process loads samples, and shifts them at random
            samples: Any = range(3)
            loader = DataLoader(samples, 3, num_workers=1, collate_fn=_shifts)
            now["shifts"] = " ".join(f"{shift:.3f}" for shift in next(iter(loader)))
        if job.step >= settings.logged_from:
            text = "  ".join(f"{name} {_shown(now[name])}" for name in settings.logged.split())
            job.say(text, now[settings.sign], loss=now["loss"], moved=now["moved"])
        first = first or now["MiB"]
        if now["MiB"] - first > settings.limit_mib:  # as the kernel does at a container's limit
            os.kill(os.getpid(), signal.SIGKILL)
        if settings.saves_every and (job.step + 1) % settings.saves_every == 0:
            job.save()


def own_best(job: Job) -> None:
    """Save whenever the loss is the best so far, once all ranks are there."""
    best = inf
    for _ in job.steps():
        loss = job.take_step()["loss"]
        job.say(f"loss {loss:.3f}")
        if loss < best:
            best = loss
            dist.barrier(job.group)
            job.save()


def agreed_best(job: Job) -> None:
    """Save whenever the loss is the best so far, once all ranks are there."""
    best = inf
    for _ in job.steps():
        loss = job.take_step()["loss"]
        job.say(f"loss {loss:.3f}")
        mean = job.mean_of_ranks(loss)
        if mean < best:
            best = mean
            dist.barrier(job.group)
            job.save()


def _shifts(batch: list[int]) -> list[float]:
    return torch.rand(len(batch)).tolist()


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


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
    except RuntimeError as error:
        frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename == __file__]
        message = str(error).partition(". This")[0]  # then comes advice
        message = re.sub(r"(?<=\[)/\S*/(?=gloo/transport)| \[[\d.]+\]:\d+", "", message)
        job.say(f"{type(error).__name__} in {frames[-1].name}: {message}", "failed")
        if settings.cause == "own_best":
            job.say(*last_call(job.group.group_name))
            time.sleep(2)  # the others meet the time-out too, and not this rank's end
        os._exit(1)
    os._exit(0)


def last_call(group: str) -> tuple[str, str]:
    """A group's last call in the flight recorder, with the line of ours that made it; its kind."""
    dump = pickle.loads(_distributed_c10d._dump_fr_trace(True, True, False))  # type: ignore[attr-defined]
    call = [call for call in dump["entries"] if call["process_group"][0] == group][-1]
    frame = next(frame for frame in call["frames"] if frame["filename"] == __file__)
    line = Path(__file__).read_text().splitlines()[frame["line"] - 1].strip()
    kind = call["profiling_name"].removeprefix("gloo:")
    return f"flight recorder: call {call['op_id']}, {kind}, in {frame['name']}: {line}", kind


def incident(rank: Rank[Settings]) -> None:
    """Run the job's attempts; print its log; measure exit codes, and where signs part."""
    lines: list[dict[str, Any]] = []
    for attempt in range(rank.settings.num_attempts):
        codes = exit_codes(rank, attempt)
        logs = sorted(rank.scratch.glob(f"log-{attempt}-*"))
        of_attempt = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
        for line in sorted(of_attempt, key=lambda line: (line["at"], line["nth"])):
            print(f"[rank {line['rank']}] step {line['at']:2}  {line['text']}")
        named = [f"{c} ({signal.Signals(-c).name})" if c < 0 else str(c) for c in codes]
        print("[launcher] exit codes by rank:", ", ".join(named))
        lines += of_attempt
    rank.measure("exit_codes", codes)
    for name in ("loss", "moved", "resumed"):
        numbers = [line["facts"].get(name, inf) for line in lines if line["rank"] == 0]
        if any(map(isfinite, numbers)):
            rank.measure(name, [number for number in numbers if isfinite(number)])
    signs = [line["sign"] for line in lines if line["at"] == 1 and line["sign"]]
    odd_rank, odd_step = parting(lines, rank.settings.num_ranks)
    findings = {"odd_rank": odd_rank, "odd_step": odd_step, "num_distinct_signs": len(set(signs))}
    is_timed = rank.settings.cause == "slow_rank"
    for name, value in findings.items():
        rank.measure(name, value, repeats="clock" if is_timed else "rounded")


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
    logged: str = "loss"  # of each step
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
    seed_of_rank: bool = False


def _job(cause: str, logged: str, rank: int = 1, sign: str = "weights", **more: Any) -> Declaration:
    settings = Settings(cause=cause, logged=logged, faulty_rank=rank, sign=sign, **more)
    return Declaration(
        "incident", 1, settings, passes=("timed",), needs_group=False, only_on_cpu=True
    )


LATER: dict[str, Any] = {"logged_from": 38, "stop_step": 40, "num_steps": 44, "saves_every": 40}
late = partial(_job, num_steps=24, logged_from=20, faulty_step=22)
resumed = partial(_job, num_attempts=2)
seeded = partial(_job, "equal_seeds", "loss samples shifts", 1, "shifts", num_steps=2)
RUNS = {
    "healthy": late("nothing", "loss weights"),
    "hung": _job("own_best", "loss", 2, timeout_seconds=3),
    "not_hung": _job("agreed_best", "loss"),
    "out_of_memory": _job("out_of_memory", "loss MiB", 0, "grows", limit_mib=50),
    "stale_epoch": resumed("stale_epoch", "loss samples", sign="epoch", num_steps=6, saves_every=4),
    "bad_batch": late("bad_batch", "loss gradient", 2, "jumps"),
    "no_labels": late("no_labels", "loss gradient labels", 1, "is_nan"),
    "slow_rank": _job("slow_rank", "loss seconds waiting", 2, "waits", num_steps=4),
    "flipped_bit": late("flipped_bit", "loss weights", 0),
    "torn_save": resumed("torn_save", "loss", faulty_step=3, saves_every=2),
    "new_optimizer": resumed("new_optimizer", "loss samples rate moved", **LATER),
    "equal_seeds": seeded(),
    "own_seeds": seeded(seed_of_rank=True),
    "old_settings": _job("old_settings", "loss weights", 2),
    "disk_full": resumed("disk_full", "loss", num_steps=4, stop_step=7, saves_every=2),
}
