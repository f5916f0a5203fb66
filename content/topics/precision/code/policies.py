"""Bits of each tensor of a block, as three ways of computing in bf16 leave them.

torchrun --nproc-per-node 2 policies.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy

WIDTH, EXPERTS, BF16 = 16, 4, torch.bfloat16

dist.init_process_group("gloo")


class Block(nn.Module):
    """A norm, a router of experts, a table of positions and a loss."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.register_buffer("table", torch.arange(float(WIDTH)).cos())

    def forward(self, features, labels):
        normed = self.norm(product := self.layer(features))
        turned = (normed * self.table).to(normed.dtype)  # an fp32 table makes the product fp32
        found = {"product": product, "norm": normed, "router": self.router(turned).softmax(1)}
        return found | {"entropy": cross_entropy(product, labels) + found["router"].mean()}


def trained(dtype=torch.float32, policy=None, **autocast):
    """One step, and all tensors of the block."""
    model = Block().to(dtype)
    if policy:
        fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.Adam(model.parameters())
    with torch.autocast("cpu", BF16, **autocast):
        found = model(torch.randn(8, WIDTH).to(dtype), torch.zeros(8, dtype=torch.long))
    found["entropy"].backward()
    optimizer.step()
    stored = {"parameter": model.layer.weight, "gradient": model.layer.weight.grad}
    moments = optimizer.state[model.layer.weight]["exp_avg"]
    return found | stored | {"moments": moments, "table": model.table}


def forward_on_cuda():
    """What autocast does on a GPU, without one: shapes and dtypes alone."""
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", BF16)
    model, weights = Block(), {}
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
        for name, one in model.state_dict().items():
            weights[name] = torch.empty(one.shape)
        inputs = torch.empty(8, WIDTH), torch.zeros(8, dtype=torch.long)
        return torch.func.functional_call(model, weights, inputs)


policy = MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=torch.float32)
ways = {"autocast": trained(), "policy": trained(policy=policy, enabled=False)}
ways |= {"narrow": trained(BF16, enabled=False), "cuda": forward_on_cuda()}
report = {}
for way, tensors in ways.items():
    bits = {name: one.dtype.itemsize * 8 for name, one in tensors.items()}
    report |= {f"{way}_{name}_bits": num for name, num in bits.items()}
    print(f"{way:>8}:", *(f"{name} {num}" for name, num in bits.items()))
report = [report]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
