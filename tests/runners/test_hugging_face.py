"""Checkpoints of Hugging Face, by the lines of “First run”, against the library of their format."""

import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import _disable_current_modes

from tests.judged import judged
from tests.processes import ROOT

LINES = ROOT / "content/code/hugging_face.py"
TIED = ["2.weight"]


def built(seed: int) -> nn.Module:
    """An embedding, a layer, and a head that shares the weight of the embedding."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 5), nn.Linear(5, 7, bias=False))
    model[2].weight = model[0].weight
    return model


def reshaped(_, folder: Path) -> dict[str, torch.Tensor]:
    """Load the given file into shards of other values, and write it again."""
    with _disable_current_modes():
        lines, model = runpy.run_path(str(LINES)), built(seed=1)
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        with pytest.raises(CheckpointException, match="Missing key in checkpoint"):
            lines["load"](model, str(folder / "given"))
        lines["load"](model, str(folder / "given"), TIED)
        loaded = {name: shard.full_tensor() for name, shard in model.named_parameters()}
        lines["save"](model, str(folder / "written"), TIED)
    return loaded


@pytest.mark.ranks
def test_a_checkpoint_of_hugging_face_is_loaded_into_shards_and_written_again(tmp_path):
    given = dict(built(seed=0).named_parameters())
    (tmp_path / "given").mkdir()
    save_file(given, tmp_path / "given/model.safetensors")
    loaded = judged(reshaped, 2, tmp_path)[0].returned
    [file] = (tmp_path / "written").glob("*.safetensors")
    written = load_file(file)
    assert given.keys() == loaded.keys() == written.keys()
    for name, value in given.items():
        assert torch.equal(value, loaded[name]), name
        assert torch.equal(value, written[name]), name
