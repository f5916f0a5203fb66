"""Faults in clipping, in optimizers, in data, and in what changes on one rank alone.

torchrun --nproc-per-node 2 updates.py NAME, such as init_differs
"""

import copy
import sys
from datetime import timedelta
from itertools import chain, pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
draws = torch.Generator().manual_seed(rank)


def mlp(*sizes, act=nn.ReLU):
    return nn.Sequential(*chain(*((nn.Linear(a, b), act()) for a, b in pairwise(sizes))))[:-1]


def updates(optimizer, count=4):
    """Numbers of updates: gradients are emptied before each, and the optimizer steps after it."""
    for step in range(count):
        optimizer.zero_grad()
        yield step
        optimizer.step()


def sharded(model, **how):
    """FSDP of each linear layer, and of the rest."""
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **how)
    fully_shard(model, **how)
    return model


def clip_before_unscale():
    """The gradients are clipped while they are still multiplied by the loss scale.

    After milesial/Pytorch-UNet#468, pytorch/examples#1196.
    """
    layers = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1)
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(4):
        images = torch.rand(4, 1, 8, 8, generator=draws)
        loss = F.binary_cross_entropy_with_logits(model(images), (images > 0.5).float())
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def clip_each_rank_first():
    """Each rank clips its own gradient before the all-reduce.

    After facebookresearch/fairseq#494 and pytorch/pytorch#72548.
    """
    model = mlp(8, 16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in updates(optimizer):
        x = torch.randn(8, 8, generator=draws) * (1 + 3 * rank)
        F.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= ranks


def clip_local_shard():
    """Every rank clips by the norm of its own shard, so the ranks scale by different factors.

    After PrimeIntellect-ai/OpenDiloco#6, pytorch/pytorch#72548.
    """
    model = sharded(mlp(8, 32, 32, 1, act=nn.SiLU))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        x = torch.randn(16, 8, generator=draws)
        F.mse_loss(model(x), 10 * x.prod(1, keepdim=True)).backward()
        gradients = [p.grad.to_local() for p in model.parameters() if p.grad is not None]
        norms = [torch.linalg.vector_norm(g) for g in gradients if g.numel()]
        total = torch.linalg.vector_norm(torch.stack(norms))
        factor = torch.clamp(0.5 / (total + 1e-6), max=1.0)
        for gradient in gradients:
            gradient.mul_(factor)
        optimizer.step()
        optimizer.zero_grad()


def hsdp_norm():
    """The norm for clipping is summed over replicas, too: larger by the root of their number.

    On 4 ranks. After ByteDance-Seed/VeOmni#184.
    """
    mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicate", "shard"))
    model = sharded(mlp(8, 32, 8, act=nn.GELU), mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in updates(optimizer, 3):
        x = torch.randn(8, 8, generator=draws)
        F.mse_loss(model(x), 3 * x).backward()
        gradients = [p.grad.to_local() for p in model.parameters()]
        total = sum(g.square().sum() for g in gradients)
        dist.all_reduce(total)
        factor = min(1.0, 0.2 / (total.sqrt().item() + 1e-6))
        for g in gradients:
            g.mul_(factor)


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def tp_norm_counts_replicas():
    """The gradient norm sums the squares over all ranks, also of replicated parameters.

    After NVIDIA-NeMo/RL#3788, ROCm/TransformerEngine#715.
    """

    def local(gradient):
        return gradient.to_local() if isinstance(gradient, DTensor) else gradient

    mesh = init_device_mesh("cpu", (ranks,))
    model = nn.Sequential(Block(), Block(), nn.Linear(16, 3))
    for block in model[:2]:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in updates(optimizer, 3):
        F.cross_entropy(model(torch.randn(8, 16)), torch.randint(0, 3, (8,))).backward()
        total = sum(local(p.grad).square().sum() for p in model.parameters())
        dist.all_reduce(total)
        factor = (0.1 / (total.sqrt() + 1e-6)).clamp(max=1.0)
        for p in model.parameters():
            local(p.grad).mul_(factor)


def bf16_does_not_move():
    """Parameters in bf16 with a small learning rate: most updates round away.

    After meta-pytorch/torchtune#2254, vllm-project/speculators#765.
    """
    model = nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8))
    model = DistributedDataParallel(model.to(torch.bfloat16))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    torch.manual_seed(1 + rank)
    for _ in updates(optimizer, 6):
        x = torch.randn(16, 32, dtype=torch.bfloat16)
        F.cross_entropy(model(x).float(), x[:, :8].float().argmax(1)).backward()


def decay_one_rank():
    """Rank 0 reads a weight decay from its own settings, and the others take the default.

    No report of exactly this was found; NVlabs/LongLive#71 is of a seed that differs by rank.
    """
    settings = {"lr": 1e-2, "weight_decay": 0.0}
    if rank == 0:
        settings |= {"weight_decay": 0.1}
    model = DistributedDataParallel(mlp(7, 21, 1))
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
    for _ in updates(optimizer, 5):
        x = torch.randn(8, 7, generator=draws)
        labels = (x.sum(1, True) > 0).float()
        F.binary_cross_entropy_with_logits(model(x), labels).backward()


class EMA:
    def __init__(self, model, decay=0.9, write_back_every=2):
        self.online, self.average = model, copy.deepcopy(model)
        self.decay, self.every, self.step = decay, write_back_every, 0

    @torch.no_grad()
    def update(self):
        self.step += 1
        pairs = list(zip(self.average.parameters(), self.online.parameters(), strict=True))
        for average, online in pairs:
            average.lerp_(online, 1 - self.decay)
        for average, online in pairs if self.step % self.every == 0 else ():
            online.copy_(average)


def ema_rank0():
    """Rank 0 alone copies its moving average into the model that trains.

    After lucidrains/ema-pytorch#9.
    """
    net = mlp(5, 20, 5, act=nn.SiLU)
    model = DistributedDataParallel(net)
    ema = EMA(net) if rank == 0 else None
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    torch.manual_seed(50 + rank)
    for _ in range(5):
        x = torch.randn(16, 5)
        noise = torch.randn_like(x)
        loss = F.mse_loss(model(x + noise), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if ema is not None:
            ema.update()


def optimizer_before_fully_shard():
    """The optimizer holds the parameters from before fully_shard, and updates none of the model's.

    After huggingface/accelerate#3394, mosaicml/composer#3822.
    """
    model = mlp(16, 64, 64, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sharded(model)
    for _ in updates(optimizer):
        x = torch.randn(8, 16, generator=draws)
        F.cross_entropy(model(x), x[:, :4].argmax(1)).backward()


def rank0_clamp():
    """Rank 0 alone rescales a weight after the second update.

    After deepspeedai/DeepSpeed#253 (initialisation on rank 0).
    """
    layers = nn.Embedding(30, 16), nn.Flatten(), nn.Linear(16 * 4, 2)
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(6):
        tokens = torch.randint(0, 30, (8, 4), generator=draws)
        loss = F.cross_entropy(model(tokens), (tokens.sum(1) % 2).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step == 1:
            with torch.no_grad():
                model.module[0].weight.renorm_(2, 0, 1.0)


def scheduler_per_microbatch():
    """The scheduler steps once a microbatch and not once an update.

    After huggingface/accelerate#963, starVLA/starVLA#210.
    """
    accumulation, count = 4, 5
    model = DistributedDataParallel(mlp(8, 16, 1, act=nn.Tanh))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / count))
    for micro in range(accumulation * count):
        last = (micro + 1) % accumulation == 0
        model.require_backward_grad_sync = last
        x = torch.randn(4, 8, generator=draws)
        loss = F.mse_loss(model(x), x.mean(1, keepdim=True)) / accumulation
        loss.backward()
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        warm.step()


class Centred(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("centre", torch.zeros(width))
        self.layer = nn.Linear(width, 4)

    def forward(self, x):
        if self.training:
            self.centre = 0.5 * self.centre + 0.5 * x.mean(0)
        return self.layer(x - self.centre)


def buffer_reassigned():
    """The forward pass assigns a new tensor to a buffer, so DDP no longer broadcasts it.

    After pytorch/pytorch#63916.
    """
    model = DistributedDataParallel(Centred(6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in updates(optimizer):
        x = torch.randn(8, 6) + rank
        F.cross_entropy(model(x), x[:, :4].argmax(1)).backward()


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.member_projection = nn.Embedding(20, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, tokens):
        return self.head(self.member_projection(self.emb(tokens).mean(1)).relu())


def frozen_by_name():
    """The program freezes the "emb" parameters by a substring, and freezes a projection with them.

    After reports such as JDAI-CV/fast-reid#178.
    """
    net = Embedded()
    for name, p in net.named_parameters():
        if "emb" in name:
            p.requires_grad = False
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
    for _ in updates(optimizer):
        tokens = torch.randint(0, 20, (8, 5), generator=draws)
        F.cross_entropy(model(tokens), tokens[:, 0] % 2).backward()


def init_differs():
    """Every rank seeds by its number before it builds the model, and nobody broadcasts weights.

    After pytorch/torchtitan#166, facebookresearch/detr#544.
    """
    torch.manual_seed(1234 + rank)
    model = mlp(9, 30, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    for _ in updates(optimizer, 5):
        data = torch.randn(8, 9)
        F.nll_loss(F.log_softmax(model(data), 1), data[:, :3].argmax(1)).backward()
        for param in model.parameters():
            dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
            param.grad.data /= float(dist.get_world_size())


def overlapping_samples():
    """Each rank seeds its sampler by its number, so ranks take samples that others take too.

    After NVlabs/LongLive#71.
    """
    x = torch.randn(20, 6)
    dataset = TensorDataset(x, x.square().sum(1, keepdim=True))
    sampler = DistributedSampler(dataset, seed=1 + rank, drop_last=True)
    model = DistributedDataParallel(mlp(6, 12, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in DataLoader(dataset, batch_size=5, sampler=sampler):
            optimizer.zero_grad()
            F.mse_loss(model(xb), yb).backward()
            optimizer.step()


def same_batches():
    """A DataLoader shuffles by one seed on all ranks, without a DistributedSampler.

    After openspeech-team/openspeech#149, PatrickHua/SimSiam#16.
    """
    x = torch.randn(64, 6)
    dataset = TensorDataset(x, x.square().sum(1, keepdim=True))
    loader = DataLoader(dataset, batch_size=8, shuffle=True, drop_last=True)
    model = DistributedDataParallel(mlp(6, 32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for xb, yb in loader:
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(model(xb), yb).backward()
        optimizer.step()


def rank0_evaluates():
    """Rank 0 alone all-reduces the validation loss; the other ranks go on to the next update.

    After pytorch/pytorch#54059, horovod/horovod#159.
    """
    model = DistributedDataParallel(mlp(4, 8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        x = torch.randn(8, 4, generator=draws)
        optimizer.zero_grad()
        F.mse_loss(model(x), x).backward()
        optimizer.step()
        if step == 1 and rank == 0:
            model.eval()
            with torch.no_grad():
                loss = F.mse_loss(model.module(x), x)
            dist.all_reduce(loss, op=dist.ReduceOp.SUM)
            model.train()
    dist.barrier()


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [(nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.3)) for _ in range(3)]
        self.blocks = nn.ModuleList(nn.Sequential(*one) for one in layers)
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
        return self.head(x)


def recompute_dropout():
    """Checkpointing draws other dropout masks in the recomputation than in the forward pass.

    After allenai/OLMo-core#828, pytorch/torchtitan#1323.
    """
    model = DistributedDataParallel(Checkpointed())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + rank)
    for _ in updates(optimizer):
        x = torch.randn(16, 16)
        F.mse_loss(model(x), x.mean(1, keepdim=True)).backward()


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 12)
        self.main, self.auxiliary = nn.Linear(12, 2), nn.Linear(12, 2)

    def forward(self, x):
        h = self.body(x).relu()
        return self.main(h), self.auxiliary(h)


def static_graph_unused():
    """static_graph=True with an output that the loss does not use: DDP raises in update 2.

    After pytorch/pytorch#97030 and #79171.
    """
    model = DistributedDataParallel(TwoHeads(), static_graph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in updates(optimizer):
        x = torch.randn(8, 6)
        logits, _ = model(x)
        F.cross_entropy(logits, (x[:, 0] > 0).long()).backward()


globals()[sys.argv[1]]()
dist.destroy_process_group()
