"""A gradient of weights from gathered tokens, both turned by a Hadamard transform.

torchrun --nproc-per-node 2 same_signs.py
"""

import time

import torch
import torch.distributed as dist

TOKENS, WIDTH, BLOCK = 64, 32, 16

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
inputs, gradients = torch.randn(2, size * TOKENS, WIDTH, dtype=torch.float64)
true = gradients.T @ inputs
hadamard = torch.ones(1, 1, dtype=torch.float64)
while len(hadamard) < BLOCK:
    hadamard = torch.kron(torch.tensor([[1, 1], [1, -1]]), hadamard)


def turned(tokens, signs):
    """Mix the tokens of each block; a product of two such tensors is that of the tokens."""
    blocks = tokens.unflatten(0, (-1, BLOCK))
    return (hadamard / BLOCK**0.5 @ (signs[:, None] * blocks)).flatten(0, 1)


def gathered(tensor):
    parts = [torch.empty_like(tensor) for _ in range(size)]
    dist.all_gather(parts, tensor)
    return torch.cat(parts)


facts = {}
for way, seed in {"own": rank, "same": 0}.items():
    torch.manual_seed(seed)
    signs = torch.randint(2, (BLOCK,)) * 2 - 1
    received = gathered(turned(inputs.chunk(size)[rank], signs))  # of the tokens of all ranks
    columns = turned(gradients.chunk(size, 1)[rank], signs)  # a rank's outputs, of all tokens
    facts[way] = ((gathered(columns.T @ received) - true).norm() / true.norm()).item()
    if rank == 0:
        print(f"{way} signs: error {facts[way]:.2g}")
report = [facts]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
