"""Generated programs of some layouts, made small, as ranks of the judge."""

import importlib.util
import os
import sys
from dataclasses import replace
from unittest.mock import patch

import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

# Ranks of the small run, layout, devices of the plan, model, and what the plan changes.
LAYOUTS = [
    (2, "ddp-view", 4, "gpt2-1.5b", {"precision": "bf16-mixed"}),
    (2, "fsdp", 4, "mixtral-8x7b", {"checkpointing": "all"}),
    (2, "zero1", 4, "llama-8b", {"checkpointing": "selective"}),
    (4, "hsdp.2.4", 8, "llama-8b", {}),
    (4, "fsdp.8.4", 8, "llama-8b", {"precision": "autocast"}),
    (4, "fsdp.2+tp-sp-keep.4", 8, "mixtral-8x7b", {}),
    (2, "interleaved", 2, "llama-8b", {}),
    (4, "1f1b.2+zero1.4", 8, "llama-8b", {"precision": "bf16-mixed"}),
    (4, "1f1b.2+tp-sp-keep.2", 4, "llama-8b", {"checkpointing": "selective"}),
]
NUM_STEPS = 2


def loaded(path):
    """A program as a module, whose small model has layers for its stages and no more."""
    spec = importlib.util.spec_from_file_location(f"program_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    made_small = module.made_small

    def smaller(*given):
        plan = made_small(*given)
        least = 1 if plan.num_experts > 1 else 2  # layers of experts take ten times as long
        return replace(plan, num_layers=max(least, plan.num_stages))

    module.made_small = smaller
    return module


def trained(rank, path):
    """What a program returns under torchrun, unmetered, in the group that is there already."""
    os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank.rank))
    os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(rank.world_size))
    with (
        _disable_current_modes(),  # a meter sees each operation of a DTensor several times
        patch.object(dist, "init_process_group") as begin,
        patch.object(dist, "destroy_process_group") as end,
    ):
        outcomes = loaded(path).main(["--small", "--steps", str(NUM_STEPS)])
    begin.assert_called_once_with()
    end.assert_called_once_with()
    return outcomes
