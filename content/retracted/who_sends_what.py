"""What three stages send, and where: torchrun --nproc-per-node 3 who_sends_what.py"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, last, log = dist.get_rank(), dist.get_world_size() - 1, []
layer, given = torch.nn.Linear(6, 6), torch.ones(2, 6)
if rank:
    dist.recv(given, rank - 1)
output = layer(given.requires_grad_())
if rank < last:
    log.append(f"activations {list(output.shape)}: rank {rank} to rank {rank + 1}")
    dist.send(output.detach(), rank + 1)
    dist.recv(gradient := torch.empty_like(output), rank + 1)
output.backward(gradient if rank < last else torch.ones_like(output))
if rank:
    log.append(f"gradients {list(given.shape)}: rank {rank} to rank {rank - 1}")
    dist.send(given.grad, rank - 1)
dist.all_gather_object(gathered := [None] * (last + 1), log)
rank == 0 and print("\n".join(sorted(line for lines in gathered for line in lines)))
dist.barrier()
