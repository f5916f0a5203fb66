"""Load a checkpoint of Hugging Face into a model under FSDP, and write one of it.

Every rank calls both functions. They need the package `safetensors`. `tied` names parameters that
share their memory with another one: such a file holds them under the other name alone.
"""

from collections.abc import Collection

import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import get_model_state_dict


def load(model: nn.Module, folder: str, tied: Collection[str] = ()) -> None:
    """Each rank reads its own shards of the files `*.safetensors`, into its parameters."""
    dcp.load(stored(model, tied), storage_reader=HuggingFaceStorageReader(folder))


def save(model: nn.Module, folder: str, tied: Collection[str] = ()) -> None:
    """Each rank writes its shards, and rank 0 joins them into whole tensors."""
    writer = HuggingFaceStorageWriter(folder, save_distributed=True, enable_consolidation=True)
    dcp.save(stored(model, tied), storage_writer=writer)


def stored(model: nn.Module, tied: Collection[str]) -> dict[str, Tensor]:
    """The shards of this rank, by the names in the file."""
    state = get_model_state_dict(model)
    return {name: shard for name, shard in state.items() if name not in tied}
