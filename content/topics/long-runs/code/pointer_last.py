"""Saves that are killed at each point, with a pointer that moves before the files or after them.

torchrun --nproc-per-node 1 pointer_last.py
"""

import os
import tempfile
import zlib
from os import kill
from pathlib import Path
from signal import SIGKILL

SHARDS = ["shard-0", "shard-1", "shard-2"]


def save(folder, step, at, *, moves_first):
    """Write a checkpoint; `at` is called before each change of the disk."""
    new, state = folder / f"step-{step}", os.urandom(1000)
    at()
    new.mkdir()
    if moves_first:
        point(folder, new, at)
    for shard in SHARDS:
        write(new / shard, state, at)
    write(new / "sum", str(zlib.crc32(state * len(SHARDS))).encode(), at)
    if not moves_first:
        point(folder, new, at)


def point(folder, new, at):
    """Let the pointer name this checkpoint: at once, or not at all."""
    write(folder / "latest.new", new.name.encode(), at)
    at()
    (folder / "latest.new").rename(folder / "latest")


def write(path, content, at):
    """Write a file in two calls, and wait until it is on disk."""
    with path.open("wb", buffering=0) as file:
        for half in (content[: len(content) // 2], content[len(content) // 2 :]):
            at()
            file.write(half)
        at()
        os.fsync(file.fileno())


def is_whole(folder):
    """Whether the pointer leads to a checkpoint with all that was written."""
    last = folder / (folder / "latest").read_text()
    try:
        found = b"".join((last / shard).read_bytes() for shard in SHARDS)
        return zlib.crc32(found) == int((last / "sum").read_text())
    except (OSError, ValueError):
        return False


def killed(left, **order):
    """Whether the pointer leads to a whole checkpoint after a death; None where none came."""
    folder, points = Path(tempfile.mkdtemp()), iter(range(left))
    save(folder, 1, lambda: None, **order)
    if (child := os.fork()) == 0:
        save(folder, 2, lambda: next(points, None) is None and kill(os.getpid(), SIGKILL), **order)
        os._exit(0)
    return is_whole(folder) if os.WIFSIGNALED(os.waitpid(child, 0)[1]) else None


facts = {}
for name, moves_first in (("moves_first", True), ("moves_last", False)):
    found = []
    while (one := killed(len(found), moves_first=moves_first)) is not None:
        found.append(one)
    facts[f"num_points_{name}"], facts[f"num_torn_{name}"] = len(found), found.count(False)
    print(f"{name}: killed at {len(found)} points; torn checkpoints: {found.count(False)}")
report = [facts]
