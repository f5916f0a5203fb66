"""Layers divided between two ranks: torchrun --nproc-per-node 2 layers_apart.py"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, activation = dist.get_rank(), torch.ones(8, 300)
layers = torch.nn.Sequential(*[torch.nn.Linear(300, 300) for _ in range(2)])
if rank == 1:
    dist.recv(activation, 0)
output = layers(activation.requires_grad_())
if rank == 0:
    dist.send(output.detach(), 1)
    dist.recv(gradient := torch.empty_like(output), 1)
    output.backward(gradient)
else:
    output.sum().backward()
    dist.send(activation.grad, 0)
dist.all_gather_object(held := [0, 0], sum(p.numel() for p in layers.parameters()))
rank == 0 and print(f"of {sum(held):,} parameters the ranks hold {held}")
dist.barrier()
