"""A script for GPUs that calls what such scripts call, and asserts what it is given."""

import io
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group(backend="nccl", init_method="env://")
assert rank == torch.cuda.current_device()
assert torch.cuda.device_count() == dist.get_world_size() == 2

# What leaves the GPU, or pinned memory, is a copy.
held = torch.ones(3, device=torch.device("cuda")).to(rank)
held.cpu().zero_()
held.to("cpu").zero_()
assert held.sum() == 3
staged = torch.zeros(4, pin_memory=True)
sent = staged.to("cuda", non_blocking=True)
staged.fill_(7)
assert sent.sum() == 0

dist.all_reduce(held, op=dist.ReduceOp.AVG)
dist.all_reduce(held, async_op=True).wait()
assert held.sum() == 6
part = torch.empty(1, device="cuda")
whole = torch.arange(2.0, device="cuda")
dist.reduce_scatter_tensor(part, whole, op=dist.ReduceOp.AVG)
assert part.item() == rank
group = dist.new_group([0, 1], backend="nccl")
dist.barrier(group=group, device_ids=[rank])

torch.manual_seed(3)
with torch.cuda.device(rank), torch.device(f"cuda:{rank}"):
    layer = nn.Linear(4, 4)
torch.set_default_device("cuda")
torch.randn(2)
torch.set_default_device(None)
layer = layer.to(rank).cuda().to(device="cuda:0", dtype=torch.float32)
file = io.BytesIO()
torch.save(layer.state_dict(), file)
for where in (f"cuda:{rank}", {"cuda:0": f"cuda:{rank}"}, torch.device("cuda"), None):
    file.seek(0)
    layer.load_state_dict(torch.load(file, map_location=where, weights_only=True))

state = torch.cuda.get_rng_state()
drawn = torch.rand(2, device="cuda")
torch.cuda.set_rng_state(state)
assert torch.equal(drawn, torch.rand(2, device="cuda"))
with torch.random.fork_rng(devices=[rank]):
    torch.rand(1)
assert isinstance(torch.Generator("cuda"), torch.Generator)
assert isinstance(torch.default_generator, torch.Generator)

event = torch.cuda.Event(enable_timing=True)
event.record()
torch.cuda.current_stream().wait_event(event)
event.synchronize()
square = torch.ones(2, 2, device="cuda")
with torch.autocast(device_type="cuda"):
    assert (square @ square).dtype == torch.float16
with torch.cuda.amp.autocast(dtype=torch.bfloat16):
    assert (square @ square).dtype == torch.bfloat16

model = DDP(nn.Linear(4, 4).cuda(rank), [rank])
model.to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
data = TensorDataset(torch.randn(64, 4, generator=torch.Generator().manual_seed(1)))
for (x,) in DataLoader(data, 8, sampler=DistributedSampler(data), pin_memory=True):
    goal = torch.zeros(8, 4, device=rank)
    loss = nn.functional.mse_loss(model(x.cuda(non_blocking=True)), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.cuda.empty_cache()
print(torch.cuda.memory_summary(), torch.cuda.get_device_properties(0).total_memory)
ranks = [None] * 2
dist.all_gather_object(ranks, rank)
assert ranks == [0, 1]
dist.destroy_process_group()
