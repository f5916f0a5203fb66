"""Two ranks share the hidden features of an MLP.

torchrun --nproc-per-node 2 bias_in_parts_right.py
"""

import time

import torch
import torch.distributed as dist
from torch.nn.functional import gelu, linear

WIDTH, HIDDEN = 8, 32

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
tokens = torch.randn(4, WIDTH)
first, second = torch.randn(HIDDEN, WIDTH) / 4, torch.randn(WIDTH, HIDDEN) / 8
first_bias, second_bias = torch.randn(HIDDEN), torch.randn(WIDTH)

columns, own_bias = first.chunk(size)[rank], first_bias.chunk(size)[rank]
rows = second.chunk(size, 1)[rank]
hidden = gelu(linear(tokens, columns, own_bias))
outputs = linear(hidden, rows)
dist.all_reduce(outputs)
outputs += second_bias

whole = linear(gelu(linear(tokens, first, first_bias)), second, second_bias)
apart = (outputs - whole).abs().max().item()
if rank == 0:
    print(f"largest difference from one process: {apart:.2g}")
    print(f"largest value of the second bias: {second_bias.abs().max().item():.2g}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
report = [{"apart": apart}]
