"""Generated programs, made small, as ranks of the judge."""

import importlib.util
import os
import sys
from dataclasses import replace
from unittest.mock import patch

import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

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
        return replace(plan, num_layers=max(2, plan.num_stages))

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
