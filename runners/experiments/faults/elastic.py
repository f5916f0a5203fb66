"""A training under the elastic launcher, and what its events show.

In: a `Rank` that is the launcher, a plan with the deaths that are to happen. Out: measures of that
rank. The launcher's processes end with it, and are watched, so that this rank says it is alive for
as long as they work.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed.run

from runners.experiments.faults import ElasticSettings, program
from runners.ranks.rank import Rank

NUM_SPARE_RESTARTS = 3  # for deaths that are not planned
BEAT_SECONDS = 0.1
Event = dict[str, Any]


def launch(rank: Rank[ElasticSettings], plan: dict[str, Any]) -> list[Event]:
    """Train under `torchrun` to the end, whichever rank dies; every event, in order."""
    folder = rank.scratch / "faults"
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(plan))
    os.environ[program.FOLDER] = str(folder)
    os.environ[program.LAUNCHER] = str(os.getpid())
    started = time.monotonic()
    with rank.phase("elastic launcher"), _watched(rank, folder / "events.jsonl"):
        torch.distributed.run.main(
            [
                "--standalone",
                f"--nproc-per-node={plan['num_ranks']}",
                f"--max-restarts={len(plan['deaths']) + NUM_SPARE_RESTARTS}",
                "--monitor-interval=0.05",
                f"--log-dir={folder / 'log'}",
                "--module",
                program.__name__,
            ]
        )
    return [{"what": "launched", "at": started}, *_events(folder / "events.jsonl")]


def record(rank: Rank[ElasticSettings], events: list[Event]) -> None:
    """Record what the events show: steps lost, costs of checkpoints and restarts, the end."""
    first = [e for e in events if e.get("rank", 0) == 0]
    steps = [e for e in first if e["what"] == "step"]
    saves = [e for e in first if e["what"] == "saved"]
    resumed = [e for e in first if e["what"] == "resumed"]
    ended = sorted((e for e in events if e["what"] == "ended"), key=lambda e: e["rank"])
    rank.outcome.step_seconds = [e["seconds"] for e in steps]
    rank.measure_seconds("checkpoint", [e["seconds"] for e in saves])
    rank.measure_seconds("start", [resumed[0]["at"] - events[0]["at"]])
    rank.measure_seconds("restart", _restarts(events))
    rank.measure("num_attempts", len(resumed))
    rank.measure("num_steps_computed", len(steps))
    rank.measure("num_steps_lost", len(steps) - ended[0]["step"])
    rank.measure("resumed_at_steps", [e["step"] for e in resumed[1:]])
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


def _events(path: Path) -> list[Event]:
    lines = path.read_text().splitlines() if path.exists() else []
    return sorted((json.loads(line) for line in lines), key=lambda event: event["at"])


@contextmanager
def _watched(rank: Rank[ElasticSettings], events: Path) -> Iterator[None]:
    """Let this rank's heart beat while the processes that it started work."""
    is_over = threading.Event()

    def watch() -> None:
        known = None
        while not is_over.wait(BEAT_SECONDS):
            seen = (_work_of_children(), events.stat().st_size if events.exists() else 0)
            if seen != known:
                known = seen
                rank.beat()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _work_of_children() -> int:
    """Processor time of the processes that this one started, in ticks; 0 where nobody tells."""
    ticks = 0
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in _text(children).split():
            fields = _text(Path("/proc") / pid / "stat").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12]) if fields else 0
    return ticks


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:  # that process has just ended
        return ""
