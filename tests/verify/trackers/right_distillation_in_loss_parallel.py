"""fault_distillation_in_loss_parallel.py, corrected: no `loss_parallel`."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor import parallel as tp

CLASSES = 12


def build():
    torch.manual_seed(0)
    layers = nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 16), nn.Linear(16, CLASSES)
    return nn.Sequential(*layers)


def batch(step):
    g = torch.Generator().manual_seed(step)
    target = torch.randn(16, CLASSES, generator=g).softmax(-1)
    return torch.randn(16, 8, generator=g), torch.randint(CLASSES, (16,), generator=g), target


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {
        "0": tp.ColwiseParallel(),
        "2": tp.RowwiseParallel(),
        "3": tp.ColwiseParallel(output_layouts=Replicate()),
    }
    model = tp.parallelize_module(build(), mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        inputs, labels, teacher = batch(step)
        optimizer.zero_grad()
        logits = model(inputs)
        log_probabilities = F.log_softmax(logits, dim=-1)
        soft = -(teacher * log_probabilities).sum() / len(inputs)
        loss = F.cross_entropy(logits, labels) + soft
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
