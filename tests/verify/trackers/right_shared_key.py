"""fault_shared_key.py, corrected: the gradient of the shared key is marked as partial."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

HEAD = 8


class Attention(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.mesh = mesh
        self.embed = nn.Linear(6, 16)
        self.query = nn.Linear(16, 4 * HEAD, bias=False)
        self.value = nn.Linear(16, 4 * HEAD, bias=False)
        self.shared_key = nn.Linear(16, HEAD, bias=False)
        self.out = nn.Linear(4 * HEAD, 6, bias=False)

    def forward(self, x):
        x = self.embed(x)
        heads = (self.query(x), self.value(x))
        query, value = (t.unflatten(-1, (-1, HEAD)).transpose(1, 2) for t in heads)
        shared = DTensor.from_local(self.shared_key(x), self.mesh, [Replicate()])
        shared = shared.to_local(grad_placements=[Partial()])
        mixed = F.scaled_dot_product_attention(query, shared.unsqueeze(1).expand_as(query), value)
        return self.out(mixed.transpose(1, 2).flatten(2))


def batch(step):
    inputs = 3 * torch.randn(4, 8, 6, generator=torch.Generator().manual_seed(step))
    return inputs, inputs.flip(1)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Attention(mesh)
    plan = {"query": ColwiseParallel(), "value": ColwiseParallel(), "out": RowwiseParallel()}
    parallelize_module(model, mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    for step in range(4):
        inputs, targets = batch(step)
        loss = F.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
