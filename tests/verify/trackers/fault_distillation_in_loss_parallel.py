"""Tensor-parallel output layer; a distillation term inside `loss_parallel`.

Report: pytorch/pytorch#190746
What is wrong: in `with tp.loss_parallel():` the backward of `log_softmax` is the identity, which
suits `cross_entropy` but not the distillation term.
Expected cause: the loss agrees, the gradients of the last layer and all before it differ.
Launch: torchrun --nproc-per-node 2 fault_distillation_in_loss_parallel.py
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
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
        "3": tp.ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }
    model = tp.parallelize_module(build(), mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        inputs, labels, teacher = batch(step)
        teacher = distribute_tensor(teacher, mesh, [Shard(-1)])
        labels = DTensor.from_local(labels, mesh, [Replicate()])
        optimizer.zero_grad()
        with tp.loss_parallel():
            logits = model(inputs)
            log_probabilities = F.log_softmax(logits, dim=-1)
            soft = -(teacher * log_probabilities).sum() / len(inputs)
            soft = soft.redistribute(placements=[Replicate()])
            loss = F.cross_entropy(logits, labels) + soft
            loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.to_local().item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
