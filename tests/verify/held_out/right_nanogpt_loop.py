# right: accumulation by require_backward_grad_sync, tied weights, the loss inside forward, clipping
"""A small GPT with the loop of nanoGPT."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

VOCAB, WIDTH, CONTEXT = 40, 24, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            z.view(b, t, 2, c // 2).transpose(1, 2) for z in self.qkv(self.norm1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, idx, targets=None):
        x = self.blocks(self.wte(idx) + self.wpe(torch.arange(idx.shape[1])))
        logits = self.head(x)
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1), ignore_index=-1)
        return logits, loss


def get_lr(it):
    return 1e-3 * min(1.0, (it + 1) / 2) * 0.5 * (1 + math.cos(math.pi * it / 10))


dist.init_process_group("gloo")
gradient_accumulation_steps = 4
torch.manual_seed(1337 + dist.get_rank())
data = torch.randint(0, VOCAB, (1000,), generator=torch.Generator().manual_seed(5))
model = DistributedDataParallel(GPT())
raw_model = model.module
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)


def get_batch():
    ix = torch.randint(len(data) - CONTEXT - 1, (3,)).tolist()
    x = torch.stack([data[i : i + CONTEXT] for i in ix])
    return x, torch.stack([data[i + 1 : i + 1 + CONTEXT] for i in ix])


X, Y = get_batch()
for it in range(4):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)
    for micro_step in range(gradient_accumulation_steps):
        model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        logits, loss = model(X, Y)
        loss = loss / gradient_accumulation_steps
        X, Y = get_batch()
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
dist.destroy_process_group()
