"""The bench of `two_tiers`: an all-reduce within nodes and between them, on a mesh of both."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement, normal
from proofbook.runners.core.meters.collectives import AxisMeter
from proofbook.runners.judging.comparison import RING, Tensors
from proofbook.runners.judging.ranks import JudgedRank

WITHIN, BETWEEN = "bytes within nodes", "bytes between nodes"


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: nodes, ranks of a node, and elements, which all ranks divide."""
    ranks = 1 if world_size % 2 else world_size // 2
    elements = world_size * draw.randrange(100, 200)
    return {"nodes": world_size // ranks, "node_ranks": ranks, "elements": elements}


def _tensor(case: LabCase, rank: int, dtype: torch.dtype) -> Tensor:
    return normal((case.settings["elements"],), case.generator(rank), dtype)


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the sum that the reader's `all_reduce` returns, and the bytes by tier."""
    sizes = {"between": case.settings["nodes"], "within": case.settings["node_ranks"]}
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    groups, meter = [mesh.get_group(axis) for axis in ("within", "between")], AxisMeter(mesh)
    tensor = _tensor(case, rank.rank, torch.float32)
    with rank.metered({"tensor": tensor}), meter:
        total = program.all_reduce(tensor, *groups)
    measured, returned = meter.measured(), {"sum": total}
    # A group of all ranks is on no axis, and spans nodes.
    for tier, axes in {WITHIN: ["within"], BETWEEN: ["between", "no_axis"]}.items():
        payloads = (
            measured.get(f"{axis}_{operation}_bytes", 0) * by_ring(sizes[axes[0]])
            for axis in axes
            for operation, by_ring in RING.items()
        )
        returned[tier] = torch.tensor(round(sum(payloads)))
    return returned


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's sum of all ranks' tensors, by name."""
    tensors = [_tensor(case, rank, dtype) for rank in range(case.world_size)]
    return {"sum": torch.stack(tensors).sum(0)}


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: the sum; its part between nodes, all within; three calls."""
    ranks, nodes = case.settings["node_ranks"], case.settings["nodes"]
    part = ELEMENT_BYTES * case.settings["elements"] // ranks
    return [
        laws.same_as_one_process(one_process, case),
        laws.counts_at_most("between", BETWEEN, 2 * (nodes - 1) * part // nodes),
        laws.counts_at_most("within", WITHIN, 2 * (ranks - 1) * part),
        laws.calls(["reduce_scatter", "all_reduce", "all_gather"]),
    ]
