"""A script for GPUs: FSDP2 on a mesh of `cuda`, with parameters gathered in bf16.

Words: `wrong` clips each rank's local shards by their own norm.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel

WORDS = sys.argv[1:]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.down(F.silu(self.up(x)))


class Model(nn.Module):
    def __init__(self, vocabulary=64, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group(backend="cpu:gloo,cuda:nccl")
mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
torch.manual_seed(0)
with torch.device("cuda"):
    model = Model()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for block in model.blocks:
    fully_shard(block, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
generator = torch.Generator("cuda").manual_seed(mesh.get_local_rank())
for step in range(3):
    tokens = torch.randint(64, (4, 17), generator=generator)
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())
    loss.backward()
    if "wrong" in WORDS:
        local = [one.grad.to_local() for one in model.parameters()]
        norm = nn.utils.get_total_norm(local)
        for one in local:
            one.mul_((0.1 / norm).clamp(max=1))
    else:
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        free, total = torch.cuda.mem_get_info()
        used = torch.cuda.memory_stats()["allocated_bytes.all.peak"]
        print(f"step {step}: {loss.item():.3f}, {used} of {total} bytes")
dist.destroy_process_group()
