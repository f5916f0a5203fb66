"""One run of any experiment as a plain script, without a recorder: one run a call.

    torchrun --nproc-per-node 2 tests/bench/plain/strategy.py request.json

The request names the experiment and holds the run's plan, where ranks run and what they speak
through, and a folder of theirs. Without an experiment the ranks only meet: a start alone. With
`tells_digest` each rank prints a line: its number, and the digest of what it trained.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from runners.plans.experiment import RunPlan, find
from runners.plans.settings import FreeSettings, RunSettings
from runners.ranks.recorder import parameter_digest
from tests.bench.bare import BareRank


def _meet(request: dict[str, Any], plan: RunPlan) -> None:
    """Join the group that torchrun's variables describe, then forget them.

    A strategy that makes a group of its own, or starts processes, must not find them.
    """
    if plan.needs_group and plan.world_size > 1:
        dist.init_process_group(request["backend"])
    for name in [n for n in os.environ if n.startswith(("TORCHELASTIC_", "GROUP_", "ROLE_"))]:
        del os.environ[name]
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        os.environ.pop(name, None)
    os.environ.pop("MASTER_PORT", None)


def main() -> None:
    """Do the work of the run and leave as ranks leave: a destroyed group sometimes aborts."""
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    experiment = find(request["experiment"]) if request["experiment"] is not None else None
    declared = request["plan"]
    settings: type[RunSettings] = FreeSettings
    if experiment is not None:
        settings = experiment.settings_of(declared["strategy"], declared["settings"])
    plan, place = RunPlan.from_json(declared, settings), int(os.environ["RANK"])
    torch.set_num_threads(1)
    _meet(request, plan)
    device = torch.device("cpu")
    if request["device"] == "cuda":
        device = torch.device("cuda", place % torch.cuda.device_count())
        torch.cuda.set_device(device)
    rank = BareRank(place, plan, device)
    rank.scratch = Path(request["scratch"])
    torch.manual_seed(plan.seed)
    if experiment is not None:
        experiment.strategies[plan.strategy](rank)
    if request["tells_digest"] and rank._module is not None:
        # In one piece, since the ranks share their output.
        sys.stdout.write(f"digest {place} {parameter_digest(rank._module.parameters())}\n")
    if dist.is_initialized() and not rank.has_lost_peers:
        dist.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
