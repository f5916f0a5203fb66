"""Two ranks clip the gradients of their shards, in fp16 and scaled, by the norm of all.

torchrun --nproc-per-node 2 norm_of_shards_wrong.py
"""

import time

import torch
import torch.distributed as dist

SCALE, MAX_NORM = 1024.0, 1.0

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
gradient = (SCALE * torch.randn(512)).half()  # of this rank's shard

square = gradient.square().sum()
dist.all_reduce(square)
norm = square.float().sqrt() / SCALE  # of the whole gradient, without the scale
factor = (MAX_NORM / norm).clamp(max=1.0)
update = factor * gradient.float() / SCALE

moved = update.square().sum()
dist.all_reduce(moved)
if dist.get_rank() == 0:
    print(f"norm of the update: {moved.sqrt().item():.3g}")
report = [{"norm": moved.sqrt().item()}]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
