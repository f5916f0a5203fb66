"""A training on a mesh of stages, data and tensor ranks. Without stages: to_mesh.py

torchrun --nproc-per-node 8 to_three_axes.py
"""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WIDTH, DEPTH, NUM_SAMPLES, BATCH, EPOCHS = 128, 4, 512, 16, 4
STAGES, TENSOR, MICROBATCHES = 2, 2, 4

on_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if on_gpu else "gloo")
shape = (STAGES, dist.get_world_size() // STAGES // TENSOR, TENSOR)
mesh = init_device_mesh(device.type, shape, mesh_dim_names=("stage", "data", "tensor"))
data, stages = mesh["data"], mesh["stage"].get_group()
number = mesh["stage"].get_local_rank()
is_first, is_last = number == 0, number == STAGES - 1

features = torch.randn(NUM_SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1))
samples = TensorDataset(features, features[:, :1].sin().expand(-1, WIDTH))
sampler = DistributedSampler(samples, data.size(), data.get_local_rank())
loader = DataLoader(samples, BATCH, sampler=sampler)

torch.manual_seed(0)
blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(DEPTH)]
layers = [*blocks, nn.Linear(WIDTH, WIDTH)]
each = DEPTH // STAGES
model = nn.Sequential(*layers[number * each : None if is_last else (number + 1) * each]).to(device)
plan = {"0.0": ColwiseParallel(), "1.0": RowwiseParallel()}
if is_last:
    plan["2"] = ColwiseParallel(output_layouts=Replicate())
parallelize_module(model, mesh["tensor"], plan)
for block in model:
    fully_shard(block, mesh=data, reshard_after_forward=False)
fully_shard(model, mesh=data, reshard_after_forward=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
stage = PipelineStage(model, number, STAGES, device, group=stages)
schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)

for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        losses = []
        arguments = (inputs.to(device),) if is_first else ()
        schedule.step(*arguments, target=targets.to(device), losses=losses)
        gradients = [parameter.grad for parameter in model.parameters()]
        square = nn.utils.get_total_norm(gradients).full_tensor().square()
        dist.all_reduce(square, group=stages)  # a stage has the gradients of its layers
        norm = square.sqrt()
        nn.utils.clip_grads_with_norm_(model.parameters(), max_norm=1.0, total_norm=norm)
        optimizer.step()
        optimizer.zero_grad()
    loss = torch.stack(losses).mean().detach() if is_last else torch.zeros((), device=device)
    dist.all_reduce(loss, group=stages)  # the last stage has it
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: loss {loss.item():.4f}, norm {norm.item():.4f}")

dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
