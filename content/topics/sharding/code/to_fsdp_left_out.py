"""Two ranks move to FSDP, each time without one line; what then happens.

torchrun --nproc-per-node 2 to_fsdp_left_out.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

WIDTH = 64

dist.init_process_group("gloo")
rank, num_ranks = dist.get_rank(), dist.get_world_size()


def built(seed):
    """A block, and a head behind it."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False))


model = built(seed=rank)  # another seed on every rank
own = model[0].weight.detach().clone()
fully_shard(model[0])
fully_shard(model)
is_own = (model[0].weight.full_tensor() == own).all(dim=1)

state = model.state_dict()  # every rank for itself
held = sum(tensor.to_local().numel() for tensor in state.values())
saved = held / sum(tensor.numel() for tensor in state.values())

try:
    state = model.module.state_dict()  # as under DDP
except AttributeError as error:
    message = str(error)

model = built(seed=0)
fully_shard(model[0])  # and not the root
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
model(torch.randn(8, WIDTH)).square().mean().backward()
optimizer.step()
head = model[1].weight.norm().item()
refused = 0
for kernels in ("foreach", "fused"):
    try:
        torch.optim.AdamW(model.parameters(), **{kernels: True}).step()
    except RuntimeError:
        refused += 1

report = [{}] * num_ranks
facts = {"rows": is_own.float().mean().item(), "saved": saved, "head": head, "refused": refused / 2}
dist.all_gather_object(report, facts)
if rank == 0:
    print(f"seeds differ: {report[0]['rows']:.0%} of the weight's rows are those of rank 0")
    print(f"rank 0 saves its state_dict(): {saved:.0%} of the values")
    print(f"model.module: {message}")
    print(f"the root is not sharded: norm of the head {head:.4f}, and {report[1]['head']:.4f}")
    print(f"of foreach and fused, {refused} refuse its gradients")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
