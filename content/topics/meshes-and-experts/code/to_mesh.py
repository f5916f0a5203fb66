"""A training on a mesh of data and tensor ranks. The same under FSDP alone: to_fsdp.py

torchrun --nproc-per-node 4 to_mesh.py
"""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WIDTH, DEPTH, NUM_SAMPLES, BATCH, EPOCHS = 128, 4, 512, 16, 4
# model_bytes: 4 * (DEPTH + 1) * (WIDTH * WIDTH + WIDTH)
TENSOR = 2  # tensor ranks; the others are data ranks

on_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if on_gpu else "gloo")
rank = dist.get_rank()
shape = (dist.get_world_size() // TENSOR, TENSOR)
mesh = init_device_mesh(device.type, shape, mesh_dim_names=("data", "tensor"))
data = mesh["data"]

features = torch.randn(NUM_SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1))
samples = TensorDataset(features, features[:, :1].sin().expand(-1, WIDTH))
sampler = DistributedSampler(samples, data.size(), data.get_local_rank())
loader = DataLoader(samples, BATCH, sampler=sampler)

torch.manual_seed(0)
blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(DEPTH)]
model = nn.Sequential(*blocks, nn.Linear(WIDTH, WIDTH)).to(device)
plan = {
    "[02].0": ColwiseParallel(),  # keeps its part of the outputs
    "[13].0": RowwiseParallel(),  # takes it, and sums over tensor ranks
    "4": ColwiseParallel(output_layouts=Replicate()),  # gathers its outputs
}
parallelize_module(model, mesh["tensor"], plan)
for block in blocks:
    fully_shard(block, mesh=data)
fully_shard(model, mesh=data)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        print(f"epoch {epoch}: loss {loss.item():.4f}, norm {norm.item():.4f}")

whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(model, options=whole)
if rank == 0:
    torch.save(state, os.devnull)  # your path
    print(f"{len(state)} tensors saved")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
