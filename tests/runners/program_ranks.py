"""Run generated programs, made small: `python -m tests.runners.program_ranks FOLDER`.

The folder holds programs named `<ranks>-<anything>.py`. What the last rank returns of each is
written beside it as JSON. Ranks are forked from this process, so that torch is loaded once.
"""

import importlib.util
import json
import multiprocessing
import os
import sys
from pathlib import Path

import torch
import torch.distributed.pipelining
import torch.distributed.tensor.parallel

from tests.processes import free_port

NUM_STEPS = 2


def loaded(path):
    """A program as a module."""
    spec = importlib.util.spec_from_file_location(f"program_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _rank(path, rank, count, port):
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": str(port)}
    os.environ |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    outcomes = loaded(path).main(["--small", "--steps", str(NUM_STEPS)])
    if rank == count - 1:
        path.with_suffix(".json").write_text(json.dumps(outcomes))


def main(folder):
    """Each program in turn."""
    fork = multiprocessing.get_context("fork")
    for path in sorted(folder.glob("*.py")):
        count = int(path.stem.partition("-")[0])
        port = free_port()
        ranks = [fork.Process(target=_rank, args=(path, r, count, port)) for r in range(count)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
