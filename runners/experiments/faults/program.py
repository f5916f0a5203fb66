"""What each rank of a faulty training runs, started by the elastic launcher:

    torchrun --standalone --nproc-per-node 2 --max-restarts 3 -m runners.experiments.faults.program

It takes up the last whole checkpoint if there is one, and trains to the end. In: `plan.json` in the
folder that PROOFBOOK_FAULTS names. Out, in that folder: checkpoints, and `events.jsonl`, a line for
whatever happened. Where the plan says so, a rank kills itself as a machine might: without a word.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = "PROOFBOOK_FAULTS"
LAUNCHER = "PROOFBOOK_FAULTS_LAUNCHER"  # its process id


def end_with_launcher() -> None:
    """Let the kernel end this process when the launcher ends, however that ends; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != int(os.environ[LAUNCHER]):
            os._exit(1)  # it has ended already


class Attempt:
    """One start of the training, after as many deaths as its number says."""

    def __init__(self) -> None:
        self.folder = Path(os.environ[FOLDER])
        self.plan = json.loads((self.folder / "plan.json").read_text())
        self.number = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        self.rank = int(os.environ["RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])

    def tell(self, what: str, step: int, **more: Any) -> None:
        """Add a line to the events, at once and whole."""
        event = {"what": what, "step": step, "attempt": self.number, "rank": self.rank, **more}
        with (self.folder / "events.jsonl").open("a") as events:
            events.write(json.dumps({"at": time.monotonic(), **event}) + "\n")

    def dies_at(self, step: int, moment: str) -> bool:
        """Whether this rank is to die here: `step` before that step, `save` in that save."""
        deaths = self.plan["deaths"]
        death = deaths[self.number] if self.number < len(deaths) else None
        return bool(death == {"step": step, "rank": self.rank, "moment": moment})

    def die(self, step: int) -> None:
        """Leave as a machine does that loses power."""
        self.tell("dies", step)
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Be one rank of one attempt."""
    end_with_launcher()  # before torch is loaded, which takes a while
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore

    from runners.experiments.faults.training import Shape, Training, last_checkpoint
    from runners.ranks.recorder import parameter_digest

    torch.set_num_threads(1)
    attempt = Attempt()
    # A store of each attempt's own: what a dead attempt left behind would confuse the next.
    store = FileStore(str(attempt.folder / f"store-{attempt.number}"), attempt.world_size)
    dist.init_process_group("gloo", store=store, rank=attempt.rank, world_size=attempt.world_size)
    training = Training(Shape(**attempt.plan["shape"]))
    place = last_checkpoint(attempt.folder)
    if place is not None:
        training.load(place)
    attempt.tell("resumed", training.step)

    while training.step < attempt.plan["num_steps"]:
        dist.barrier()  # all have got here: how many steps a death costs is the same each time
        if attempt.dies_at(training.step, "step"):
            attempt.die(training.step)
        start = time.perf_counter()
        training.take_step()
        attempt.tell("step", training.step, seconds=time.perf_counter() - start)
        if training.step % attempt.plan["checkpoint_every"] == 0:
            before_metadata = (
                (lambda: attempt.die(training.step))
                if attempt.dies_at(training.step, "save")
                else None
            )
            start = time.perf_counter()
            training.save(attempt.folder, before_metadata)
            attempt.tell("saved", training.step, seconds=time.perf_counter() - start)
    attempt.tell("ended", training.step, digest=parameter_digest(training.model.parameters()))
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
