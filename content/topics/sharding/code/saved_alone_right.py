"""All ranks gather the state of a sharded model, and one of them saves it.

torchrun --nproc-per-node 2 saved_alone_right.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
network = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 1))
fully_shard(network, mesh=mesh)
whole = StateDictOptions(full_state_dict=True, cpu_offload=True)

state = get_model_state_dict(network, options=whole)
if rank == 0:
    print(f"{len(state)} tensors to save")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
