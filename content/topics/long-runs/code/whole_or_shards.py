"""What each rank writes of one state: the whole of it on one rank, and shards on all.

torchrun --nproc-per-node 4 whole_or_shards.py
"""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.fsdp import fully_shard

WIDTH, DEPTH = 256, 4
# model_bytes: 4 * DEPTH * WIDTH * WIDTH

dist.init_process_group("gloo")
rank = dist.get_rank()
folders = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folders)
folder = Path(folders[0])
torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH)])
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters())
model(torch.randn(8, WIDTH)).square().mean().backward()
optimizer.step()

state = get_state_dict(model, optimizer)  # shards, of moments too
dcp.save({"model": state[0], "optimizer": state[1]}, checkpoint_id=folder / "shards")
whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
gathered = get_state_dict(model, optimizer, options=whole)  # a collective: every rank calls it
if rank == 0:
    torch.save({"model": gathered[0], "optimizer": gathered[1]}, folder / "whole.pt")
dist.barrier()
own = sum(file.stat().st_size for file in (folder / "shards").glob(f"__{rank}_*"))
facts = {
    "shards_bytes": own,
    "whole_bytes": (folder / "whole.pt").stat().st_size if rank == 0 else 0,
}
if rank == 0:
    dcp_to_torch_save(folder / "shards", folder / "joined.pt")
    first = torch.load(folder / "joined.pt")["model"]["0.weight"]
    facts["joined_is_equal"] = int(torch.equal(first, gathered[0]["0.weight"]))
report = [{}] * dist.get_world_size()
dist.all_gather_object(report, facts)
if rank == 0:
    print(f"bytes written, as shards: {[of['shards_bytes'] for of in report]}")
    print(f"bytes written, whole:     {[of['whole_bytes'] for of in report]}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
