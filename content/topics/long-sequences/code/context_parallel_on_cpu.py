"""PyTorch's `context_parallel` on CPU ranks, beside attention to all tokens and to own tokens.

torchrun --nproc-per-node 2 context_parallel_on_cpu.py
"""

import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn.functional import scaled_dot_product_attention

mesh = init_device_mesh("cpu", (2,))
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
whole = [torch.randn(1, 4, 64, 16, dtype=torch.float64) for _ in range(3)]
true = scaled_dot_product_attention(*whole, is_causal=True)
blocks = true.chunk(2 * size, 2)
true = torch.cat([blocks[rank], blocks[-1 - rank]], 2)  # in head-tail order
shards = [part.clone() for part in whole]
with context_parallel(mesh, buffers=shards, buffer_seq_dims=[2, 2, 2]):
    result = scaled_dot_product_attention(*shards, is_causal=True)
    own = [part.clone() for part in shards]
alone = scaled_dot_product_attention(*own, is_causal=True)
report = {}
for name, tensor in {"from_all": true, "from_own": alone}.items():
    apart = (result - tensor).abs().max()
    dist.all_reduce(apart, dist.ReduceOp.MAX)
    report[name] = apart.item()
    if rank == 0:
        print(f"largest difference {name.replace('_', ' attention to ')} tokens: {apart:.2g}")
report = [report]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
