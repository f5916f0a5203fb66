"""Replicas that never communicate: torchrun --nproc-per-node 2 no_communication.py"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
samples = torch.randn(200, 4)
targets = samples @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]]) + torch.randn(200, 1)
model = torch.nn.Linear(4, 1)
own = slice(dist.get_rank(), None, dist.get_world_size())
for step in range(101):
    if step in (0, 1, 10, 100):
        replicas = [torch.empty(1, 4) for _ in range(dist.get_world_size())]
        dist.all_gather(replicas, model.weight.detach())
        if dist.get_rank() == 0:
            print(f"after step {step:3}: {(replicas[0] - replicas[1]).norm():.4f} apart")
    (model(samples[own]) - targets[own]).square().mean().backward()
    with torch.no_grad():
        _ = [(p.sub_(0.05 * p.grad), p.grad.zero_()) for p in model.parameters()]
dist.barrier()
