"""The bench of `early_pointer`: checkpoints of all ranks, and what a kill at any line leaves."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from types import ModuleType

import torch
import torch.distributed as dist
from torch import Tensor

from proofbook.companions.labs import laws
from proofbook.companions.labs.disks import Witness, shared_folder
from proofbook.companions.labs.grading import LabCase, Requirement, normal
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

SAVES = 3
PARTS = "saves in which a kill leaves a part missing or incomplete below `latest`"
NOTHING = "saves in which a kill leaves a `latest` that names no checkpoint"
MOVED, LEFT = "saves after which `latest` names the new step", "checkpoints that are left"
ALLOWED = ("barrier", "object collective")


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps from save to save, and the width of a part."""
    return {"every": draw.randrange(2, 9), "width": draw.randrange(12, 20)}


def _part(case: LabCase, step: int, rank: int) -> dict[str, Tensor]:
    shape = case.settings["width"], case.settings["width"]
    return {"weight": normal(shape, case.generator(step, rank), torch.float32)}


class Checkpoints:
    """The folder in which a reader's program saves."""

    def __init__(self, case: LabCase) -> None:
        self.folder, self._case, self.is_saved = shared_folder(), case, False
        self.found: set[str] = set()  # since a save began
        self._whole: set[tuple[Path, int]] = set()  # parts that need no other look

    def look(self) -> None:
        """Note what is wrong with the checkpoint that `latest` names now."""
        name, problem = self.named(), NOTHING
        if name is None and not self.is_saved:
            return
        if name and (self.folder / name).is_dir():
            ranks = range(self._case.world_size)
            problem = "" if all(self._is_whole(name, rank) for rank in ranks) else PARTS
        if problem and self.named() == name:  # else `latest` has moved on meanwhile
            self.found.add(problem)

    def named(self) -> str | None:
        """What `latest` says; None where there is no such file."""
        path = self.folder / "latest"
        return path.read_text().strip() if path.is_file() else None

    def _is_whole(self, name: str, rank: int) -> bool:
        path = self.folder / name / f"rank-{rank}.pt"
        try:
            key = path, path.stat().st_mtime_ns
            if key not in self._whole:
                expected = _part(self._case, int(name.removeprefix("step-")), rank)["weight"]
                if not torch.equal(torch.load(path)["weight"], expected):
                    return False
                self._whole.add(key)
        except (OSError, RuntimeError, ValueError, KeyError, EOFError, UnpicklingError):
            return False
        return True


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, in how many saves a kill would leave no whole checkpoint, and what saves left."""
    checkpoints, every = Checkpoints(case), case.settings["every"]
    witness = Witness(program.__file__, checkpoints.look)
    parts = {step: _part(case, step, rank.rank) for step in range(every, SAVES * every + 1, every)}
    counts = dict.fromkeys((PARTS, NOTHING, MOVED, LEFT), 0)
    with rank.metered({"parts": parts}):
        for step, late_rank in zip(parts, (None, rank.world_size - 1, 0), strict=True):
            if rank.rank == late_rank == 0:  # what a save that was killed has left
                (checkpoints.folder / f"step-{step}").mkdir()
                (checkpoints.folder / f"step-{step}" / "rank-0.pt").write_bytes(b"half")
            dist.barrier()
            arguments = checkpoints.folder, step, parts[step]
            witness.follow(program.save, *arguments, is_late=rank.rank == late_rank)
            dist.barrier()
            checkpoints.is_saved = True
            checkpoints.look()
            counts[MOVED] += checkpoints.named() == f"step-{step}"
            for problem in checkpoints.found:
                counts[problem] += 1
            checkpoints.found.clear()
    counts[LEFT] = sum(path.is_dir() for path in checkpoints.folder.iterdir())
    return {name: torch.tensor(count) for name, count in counts.items()}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """Nothing: files are looked at, and no tensors returned."""
    return {}


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: whatever line a kill meets, `latest` names a whole checkpoint."""
    expected = {"whole": (PARTS, 0), "named": (NOTHING, 0), "moved": (MOVED, SAVES)}
    expected |= {"left": (LEFT, 1)}
    return [laws.counts(id_, *counted, verb="saw") for id_, counted in expected.items()]
