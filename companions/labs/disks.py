"""The disks of benches that grade checkpoints, each with what it knows of a reader's program.

`shared_folder` is one that all ranks see; a `Store` counts bytes; a `SlowDisk` writes when training
is some steps on; and a `Witness` looks, before each line of a save, at what a kill would leave.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from proofbook.runners.core.system.processes import IdleTime, are_idle
from proofbook.runners.core.system.scratch import COMPILED

LOOK_SECONDS, STILL = 0.05, 3  # training that is seen so often waiting for a thread stands still
IDLE_SECONDS, LATE_LINES = 0.05, 16  # a late rank lets all others wait before so many of its lines
WRITERS = {module.__file__ for module in (json, os, pathlib, shutil, tempfile, torch.serialization)}


def shared_folder() -> Path:
    """A new empty folder, the same on all ranks; it goes with the scratch folder of the run."""
    scratch = Path(os.environ[COMPILED]).parent
    made = [tempfile.mkdtemp(dir=scratch) if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(made)
    return Path(made[0])


class Store:
    """Tensors by name, in files that all ranks see."""

    def __init__(self) -> None:
        self._folder, self.written, self.fetched = shared_folder(), 0, 0  # bytes, of this rank

    def write(self, name: str, tensor: Tensor) -> None:
        """Write a tensor of one axis or more under a name that is new."""
        path = self._folder / f"{name}.npy"
        if path.exists():
            raise ValueError(f"{name!r} is written twice, by this rank or by another one")
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, tensor.detach().numpy())
        self.written += tensor.nbytes

    def read(self, name: str, begin: int, end: int) -> Tensor:
        """Rows `begin` up to `end` of the tensor of this name."""
        path = self._folder / f"{name}.npy"
        rows = torch.tensor(np.load(path, mmap_mode="r")[begin:end])
        self.fetched += rows.nbytes
        return rows


class SlowDisk:
    """Checkpoints by step, of a training that saves each `every` steps."""

    def __init__(self, num_steps: int, every: int) -> None:
        self._num_steps, self._every, self._asked = num_steps, every, 0.0
        self.files: dict[int, bytes] = {}
        self.waited = 0  # writes during which training stood still

    def followed(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches; the disk learns for which step training asks."""
        for self._asked, batch in enumerate(batches, 1):
            yield batch
        self._asked = inf

    def _comes(self, step: float) -> bool:
        """Wait until training asks for a step, or stands still; whether it asks."""
        still = 0
        while self._asked < step and still < STILL:
            time.sleep(LOOK_SECONDS)
            file = sys._current_frames()[threading.main_thread().ident or 0].f_code.co_filename
            still = still + 1 if file == threading.__file__ else 0
        return self._asked >= step

    def write(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Write a checkpoint when the next step is done and, if nothing waits, the next save."""
        if step == self._num_steps:
            time.sleep(STILL * LOOK_SECONDS)
        elif self._comes(step + 2):
            self._comes(step + self._every + 1)
        else:
            self.waited += 1
        file = io.BytesIO()
        torch.save({name: tensor.detach() for name, tensor in tensors.items()}, file)
        self.files[step] = file.getvalue()

    def begin_late(self, *_: Any) -> None:
        """Let a thread wait for a later step before its first call, as on a busy machine."""
        sys.settrace(None)
        self._comes(self._asked + 2 if self._asked < self._num_steps else inf)


class Witness:
    """A tracer of a reader's `file` that calls `look` before each line that may write."""

    def __init__(self, file: str | None, look: Callable[[], None]) -> None:
        self._file, self._look, self._late_lines = file, look, 0
        pids = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
        dist.all_gather(pids, torch.tensor([os.getpid()]))
        self._others = [IdleTime(int(pid)) for pid in pids if pid != os.getpid()]

    def __call__(self, frame: FrameType, event: str, _: object) -> Witness | None:
        """Look before lines of the reader's file, and of modules that write."""
        is_own = frame.f_code.co_filename == self._file
        if event == "line":
            self._look()
            if is_own and self._late_lines:
                self._late_lines -= 1
                for other in self._others:
                    other.restart()
                while not are_idle(self._others, IDLE_SECONDS):
                    time.sleep(IDLE_SECONDS / 5)
        return self if is_own or frame.f_code.co_filename in WRITERS else None

    def follow(self, save: Callable[..., None], *arguments: Any, is_late: bool) -> None:
        """Call `save`; where it is late, lines come when all other ranks wait or have ended."""
        self._late_lines = LATE_LINES * is_late
        threading.settrace(self)
        sys.settrace(self)
        save(*arguments)
        sys.settrace(None)
