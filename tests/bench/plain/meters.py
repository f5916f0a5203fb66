"""Steps of two DDP replicas, with and without the meter that tells collectives by mesh axis.

    torchrun --nproc-per-node 2 tests/bench/plain/meters.py

Rank 0 prints the seconds a step, as JSON: size → loop → samples. The environment that it is started
in may switch something for all of its life; `make bench` starts it with and without.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from runners.experiments import hangs
from runners.meters.axes import AxisMeter
from tests.bench.meters import SIZES, Size, bare_step
from tests.bench.ratio import in_turn

ROUNDS = 6


def _loops(size: Size, meter: AxisMeter) -> dict[str, Callable[[], object]]:
    model, optimizer, samples = size.made()
    step = partial(bare_step, DistributedDataParallel(model), optimizer, samples)

    def bare() -> None:
        for _ in range(size.num_steps):
            step()

    def by_axis() -> None:
        for _ in range(size.num_steps):
            with meter:
                step()

    return {"bare": bare, "by_axis": by_axis}


def _check(meter: AxisMeter) -> None:
    """See that what is measured was at work, and what is switched off was not.

    Raises:
        RuntimeError: it is otherwise.
    """
    if not meter.calls:
        raise RuntimeError("the meter saw no collective")
    dump = json.loads(_distributed_c10d._dump_fr_trace_json())  # type: ignore[attr-defined]
    recorded = bool(dump.get("entries"))
    if recorded == (os.environ[hangs.RECORDER_SIZE] == "0"):
        raise RuntimeError(f"the flight recorder is on: {recorded}, and should not be so")


def main() -> None:
    """Take the steps; both ranks do the same at every moment."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    meter = AxisMeter(init_device_mesh("cpu", (2,), mesh_dim_names=("replicas",)))
    taken = {}
    for name, size in SIZES.items():
        loops = _loops(size, meter)
        in_turn(loops, 2)  # settle caches, allocators and DDP's buckets
        seconds = in_turn(loops, ROUNDS)
        taken[name] = {loop: [s / size.num_steps for s in seconds[loop]] for loop in seconds}
    _check(meter)
    if dist.get_rank() == 0:
        print(json.dumps(taken))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
