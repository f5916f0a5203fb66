"""Right: all ranks reduce their gradients in the same order.

torchrun --nproc-per-node 2 ready_order_right.py
"""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
gradients = {"experts": torch.full((4,), 1.0), "head": torch.full((4,), 10.0)}
ready_after = {"experts": [3, 1][rank], "head": 2}  # milliseconds; rank 1 has fewer tokens

order = list(gradients)
works = [dist.all_reduce(gradients[name], async_op=True) for name in order]
for work in works:
    work.wait()
for gradient in gradients.values():
    gradient.div_(world_size)

report = [{}] * world_size
dist.all_gather_object(report, {name: one[0].item() for name, one in gradients.items()})
for other, means in enumerate(report if rank == 0 else []):
    print(f"rank {other}: mean of experts {means['experts']}, of head {means['head']}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
