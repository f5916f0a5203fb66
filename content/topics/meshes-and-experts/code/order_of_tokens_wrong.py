"""Two ranks, with an expert each, send tokens to experts and get their outputs back.

torchrun --nproc-per-node 2 order_of_tokens_wrong.py
"""

import time

import torch
import torch.distributed as dist

TOKENS, WIDTH = 16, 4

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
samples, router = torch.randn(size, TOKENS, WIDTH), torch.randn(WIDTH, size)
experts = torch.randn(size, WIDTH, WIDTH)  # one for each rank

tokens = samples[rank]
chosen = (tokens @ router).argmax(1)
order, counts = chosen.argsort(stable=True), chosen.bincount(minlength=size)
arriving = torch.empty_like(counts)
dist.all_to_all_single(arriving, counts)
received = tokens.new_empty(arriving.sum(), WIDTH)
dist.all_to_all_single(received, tokens[order], arriving.tolist(), counts.tolist())
returned = torch.empty_like(tokens)
dist.all_to_all_single(returned, received @ experts[rank], counts.tolist(), arriving.tolist())
outputs = tokens + returned

whole = tokens + torch.einsum("tw,twv->tv", tokens, experts[chosen])
apart = (outputs - whole).abs().max().item()
if rank == 0:
    print(f"largest difference from the outputs of one process: {apart:.2g}")
report = [{"apart": apart}]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
