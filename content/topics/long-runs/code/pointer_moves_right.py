"""A save that is killed before each of its lines: does the pointer lead to a whole checkpoint?

torchrun --nproc-per-node 1 pointer_moves_right.py
"""

import os
import sys
import tempfile
from pathlib import Path
from signal import SIGKILL

SHARDS = ["shard-0", "shard-1", "shard-2"]


def save(folder, step):
    """Write a checkpoint, and let the pointer name it: at once, or not at all."""
    new = folder / f"step-{step}"
    new.mkdir()
    for shard in SHARDS:
        write(new / shard, str(step) * 1000)
    write(folder / "latest.new", new.name)
    (folder / "latest.new").replace(folder / "latest")
    sync_names(folder)


def write(path, text):
    """Write a file in two calls, and wait until it is on disk, and its name as well."""
    with path.open("wb", buffering=0) as file:
        file.write(text[:5].encode())
        file.write(text[5:].encode())
        os.fsync(file.fileno())
    sync_names(path.parent)


def sync_names(folder):
    """Wait until a folder's names are on disk, which the `fsync` of a file leaves out."""
    names = os.open(folder, os.O_RDONLY)
    os.fsync(names)
    os.close(names)


def is_whole(folder):
    """Whether the pointer leads to a checkpoint with all shards as they were written."""
    last = folder / (folder / "latest").read_text()
    shards = [last / shard for shard in SHARDS]
    return all(one.exists() and one.read_text() == last.name[5:] * 1000 for one in shards)


def killed(left):
    """What the pointer leads to after a death so many lines later; None where none came."""
    folder, lines = Path(tempfile.mkdtemp()), iter(range(left))
    save(folder, 1)
    if (child := os.fork()) == 0:

        def die_in_time(frame, event, _):
            is_line = event == "line" and frame.f_code.co_name in ("save", "write", "sync_names")
            if is_line and next(lines, None) is None:
                os.kill(os.getpid(), SIGKILL)
            return die_in_time

        sys.settrace(die_in_time)
        save(folder, 2)
        os._exit(0)
    return is_whole(folder) if os.WIFSIGNALED(os.waitpid(child, 0)[1]) else None


found = []
while (one := killed(len(found))) is not None:
    found.append(one)
report = [{"num_points": len(found), "num_torn": found.count(False)}]
print(f"killed before each of {len(found)} lines; torn checkpoints: {found.count(False)}")
