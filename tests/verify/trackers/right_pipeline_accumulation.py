"""fault_pipeline_accumulation.py, corrected: the loss is scaled, not the gradient."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

CALLS, MICROBATCHES = 2, 2


def build():
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(8, 32), nn.GELU())
    return [first, nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 5))]


def batch(step):
    g = torch.Generator().manual_seed(step)
    return torch.randn(16, 8, generator=g), torch.randint(5, (16,), generator=g)


def loss_fn(outputs, labels):
    return nn.functional.cross_entropy(outputs, labels) / (CALLS * MICROBATCHES)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = build()[rank]
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=loss_fn, scale_grads=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        optimizer.zero_grad()
        inputs, labels = batch(step)
        losses = []
        for part, target in zip(inputs.chunk(CALLS), labels.chunk(CALLS), strict=True):
            if rank == 0:
                schedule.step(part)
            else:
                schedule.step(target=target, losses=losses)
        optimizer.step()
        if rank == 1:
            print(f"step {step} loss {torch.stack(losses).mean().item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
