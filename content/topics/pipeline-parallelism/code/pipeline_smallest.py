"""Two stages and four microbatches, beside the undivided model.

torchrun --nproc-per-node 2 pipeline_smallest.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.functional import mse_loss

STAGES, MICROBATCHES, BATCH, WIDTH = 2, 4, 32, 16

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)  # the same values on both ranks
layers = [nn.Linear(WIDTH, WIDTH) for _ in range(STAGES)]
batch, targets = torch.randn(2, BATCH, WIDTH)

stage = PipelineStage(layers[rank], rank, STAGES, torch.device("cpu"))
schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=mse_loss)
if rank == 0:
    schedule.step(batch)  # the first stage takes the samples
else:
    schedule.step(target=targets)  # the last stage computes the loss
pipelined = layers[rank].weight.grad.clone()

for layer in layers:
    layer.zero_grad()
mse_loss(layers[1](layers[0](batch)), targets).backward()  # no pipeline: the whole model
difference = (layers[rank].weight.grad - pipelined).abs().max().item()
report = [None] * STAGES
dist.all_gather_object(report, {"difference": difference})
if rank == 0:
    for index, one in enumerate(report):
        print(f"stage {index}: largest difference of the gradient {one['difference']:.1e}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
