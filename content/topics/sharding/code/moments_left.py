"""A checkpoint that is loaded into a new optimizer, without moments and with them.

torchrun --nproc-per-node 2 moments_left.py
"""

import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

NUM_STEPS = 6

dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder)


def built() -> tuple[nn.Module, torch.optim.Optimizer]:
    """A sharded model and its optimizer, before their first step."""
    torch.manual_seed(0)
    network = nn.Linear(16, 16)
    fully_shard(network, mesh=mesh)
    return network, torch.optim.Adam(network.parameters(), lr=0.01)


def trained(network: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> float:
    """The loss after some steps."""
    for step in steps:
        samples = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
        loss = (network(samples) - samples).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


network, optimizer = built()
trained(network, optimizer, range(NUM_STEPS // 2))
weights, moments = get_state_dict(network, optimizer)
dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder[0])
losses = {"undisturbed": trained(network, optimizer, range(NUM_STEPS // 2, NUM_STEPS))}

network, optimizer = built()
state = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}  # holds no moments
dcp.load(state, checkpoint_id=folder[0])
network.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
num_moments = len(optimizer.state)
losses["without"] = trained(network, optimizer, range(NUM_STEPS // 2, NUM_STEPS))

network, optimizer = built()
weights, moments = get_state_dict(network, optimizer)  # makes the moments that are to be filled
state = {"model": weights, "optimizer": moments}
dcp.load(state, checkpoint_id=folder[0])
set_state_dict(
    network, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
)
losses["with"] = trained(network, optimizer, range(NUM_STEPS // 2, NUM_STEPS))

report = [{}] * dist.get_world_size()
dist.all_gather_object(report, losses | {"num_moments": num_moments})
if rank == 0:
    print(f"undisturbed: last loss {losses['undisturbed']:.6f}")
    print(f"optimizer.state_dict(): {num_moments} parameters with moments, {losses['without']:.6f}")
    print(f"get_state_dict: {losses['with']:.6f}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
