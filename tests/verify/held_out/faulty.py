"""Faulty programs: in sums of gradients, in clipping, in data, and in what one rank alone changes.

torchrun --nproc-per-node 2 faulty.py NAME, such as averaged_twice; on 4 ranks hsdp_norm
"""

import sys
from datetime import timedelta
from itertools import chain, pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import (
    all_gather_tensor_autograd,
    all_to_all_single_autograd,
    reduce_scatter_tensor_autograd,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

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


def averaged_twice():
    """DDP averages the gradients, and the program divides them by the ranks once more.

    After tczhangzhi/pytorch-distributed#14, NVIDIA/apex#696.
    """
    model = DistributedDataParallel(mlp(10, 20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for _ in updates(optimizer):
        x = torch.randn(8, 10, generator=draws)
        (model(x) - x[:, :1]).pow(2).mean().backward()
        for p in model.parameters():
            p.grad.div_(dist.get_world_size())


class Engine:
    def __init__(self, accumulation):
        self.accumulation = accumulation

    def backward(self, loss):
        (loss / self.accumulation).backward()


class Trainer:
    def __init__(self, model, accumulation):
        self.engine, self.accumulation = Engine(accumulation), accumulation
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def training_step(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        loss = loss / self.accumulation
        self.engine.backward(loss)
        return loss.detach()

    def train(self, steps):
        for _ in range(steps):
            for _ in range(self.accumulation):
                x = torch.randn(6, 12, generator=draws)
                self.training_step(x, x[:, :5].argmax(1))
            self.optimizer.step()
            self.optimizer.zero_grad()


def loss_divided_twice():
    """training_step divides the loss by the microbatches, and backward divides it again.

    After huggingface/accelerate#3533, huggingface/transformers#40709.
    """
    Trainer(mlp(12, 24, 5), 2).train(4)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.passage = nn.Linear(12, 8), nn.Linear(12, 8)

    def forward(self, query, passage):
        scores = self.query(query) @ self.passage(passage).T
        loss = F.cross_entropy(scores, torch.arange(len(query)), reduction="mean")
        if self.training and dist.is_initialized():
            loss = loss * dist.get_world_size()
        return loss


def loss_times_ranks():
    """The loss is multiplied by the number of ranks, as if DDP had to be undone.

    After texttron/tevatron#143, lightonai/pylate#156.
    """
    model = DistributedDataParallel(Encoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in updates(optimizer):
        query = torch.randn(6, 12)
        model(query, query + 0.1 * torch.randn(6, 12)).backward()


def zero_grad_inside():
    """zero_grad is called for each microbatch, so an update sees only the last one.

    After bytetriper/RAE#67, tatsu-lab/alpaca_farm#57.
    """
    model = DistributedDataParallel(mlp(6, 12, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    grad_accum = 3
    for step in range(12):
        x = torch.randn(4, 6, generator=draws)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), (x.sum(1) > 0).long()) / grad_accum
        loss.backward()
        if (step + 1) % grad_accum == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


def uneven_last_batch():
    """The last batch has fewer samples on the later ranks, and the means of ranks count alike.

    After pytorch/pytorch#22584, huggingface/transformers#24725.
    """
    x = torch.randn(20 * (ranks - 1) + 17, 5)
    dataset = TensorDataset(x, x.prod(1, keepdim=True))
    mine = Subset(dataset, range(rank * 20, min((rank + 1) * 20, len(dataset))))
    loader = DataLoader(mine, batch_size=8, shuffle=False)
    model = DistributedDataParallel(mlp(5, 15, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for xb, yb in chain(loader, loader):
        loss = F.mse_loss(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(20, 8), nn.Linear(10, 8)

    def forward(self, image, text):
        return F.normalize(self.image(image)), F.normalize(self.text(text))


def gather_without_grad():
    """all_gather returns the embeddings of other ranks without a graph: half the gradient is lost.

    After mlfoundations/open_clip#616, huggingface/accelerate#1154.
    """

    def gather(tensor):
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, tensor.detach())
        parts[dist.get_rank()] = tensor
        return torch.cat(parts)

    model = DistributedDataParallel(Towers())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + rank)
    for _ in updates(optimizer):
        image, text = model(torch.randn(6, 20), torch.randn(6, 10))
        logits = 5 * image @ gather(text).T
        F.cross_entropy(logits, rank * 6 + torch.arange(6)).backward()


class Classifier(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        *body, _ = sizes
        self.body, self.head = nn.Sequential(mlp(*body), nn.ReLU()), nn.Linear(*sizes[-2:])

    def forward(self, x):
        return self.head(self.body(x))


def parameter_replaced():
    """The head gets a new parameter after DDP was built, so its gradient is not reduced.

    After pytorch/pytorch#12603.
    """
    model = DistributedDataParallel(Classifier(12, 24, 4), find_unused_parameters=True)
    model.module.head.weight = nn.Parameter(torch.zeros(4, 24))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in updates(optimizer):
        x = torch.randn(8, 12, generator=draws)
        F.cross_entropy(model(x), x[:, :4].argmax(1)).backward()


def unfrozen_after_ddp():
    """The body is unfrozen after DDP was built, so its gradients are not reduced.

    After Lightning-AI/pytorch-lightning#20340.
    """
    net = Classifier(10, 20, 20, 3)
    net.body.requires_grad_(False)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in range(6):
        if step == 1:
            net.body.requires_grad_(True)
        x = torch.randn(8, 10, generator=draws)
        loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Experts(nn.Module):
    def __init__(self, width):
        super().__init__()
        all_experts = [nn.Linear(width, width) for _ in range(ranks)]
        self.expert = all_experts[rank]

    def forward(self, x):
        sent = x.reshape(-1, ranks, x.shape[-1]).transpose(0, 1).contiguous()
        got = all_to_all_single_autograd(sent, None, None, dist.group.WORLD)
        back = all_to_all_single_autograd(self.expert(got), None, None, dist.group.WORLD)
        return back.transpose(0, 1).reshape(x.shape)


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.experts, self.last = nn.Linear(8, 8), Experts(8), nn.Linear(8, 1)

    def forward(self, x):
        h = self.first(x).relu()
        return self.last(h + self.experts(h).relu())


def experts_doubled():
    """Gradients of an expert on each rank are sums over the ranks already, and nobody divides them.

    After pytorch/pytorch#160285, databricks/megablocks#86.
    """
    model = Sparse()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in updates(optimizer, 3):
        x = torch.randn(8, 8, generator=draws)
        F.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        for name, p in model.named_parameters():
            if "experts" not in name:
                dist.all_reduce(p.grad)
                p.grad /= ranks


class SequenceBlock(nn.Module):
    """Of one rank's part of the sequence, shape (sequence / ranks, batch, width)."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width // ranks, bias=False)
        self.down = nn.Linear(4 * width // ranks, width, bias=False)
        whole_up = torch.randn(4 * width, width) / width**0.5
        whole_down = torch.randn(width, 4 * width) / (4 * width) ** 0.5
        with torch.no_grad():
            self.up.weight.copy_(whole_up.chunk(ranks)[rank])
            self.down.weight.copy_(whole_down.chunk(ranks, 1)[rank])

    def forward(self, x):
        whole = all_gather_tensor_autograd(self.norm(x), 0, dist.group.WORLD)
        partial = self.down(F.gelu(self.up(whole)))
        return x + reduce_scatter_tensor_autograd(partial, "sum", 0, dist.group.WORLD)


def sp_norm_not_reduced():
    """Each rank normalises its part of the sequence, and nobody reduces the norm's gradient.

    After NVIDIA/Megatron-LM#1446, EleutherAI/gpt-neox#1257.
    """
    model = nn.Sequential(SequenceBlock(16), SequenceBlock(16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in updates(optimizer, 3):
        x = torch.randn(8, 4, 16)
        y = x.roll(1, 0)
        mine = model(x.chunk(ranks)[rank])
        ((mine - y.chunk(ranks)[rank]).square().sum() / y.numel()).backward()


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
    for _ in updates(optimizer):
        x = torch.randn(8, 6, generator=draws)
        logits, _ = model(x)
        F.cross_entropy(logits, (x[:, 0] > 0).long()).backward()


globals()[sys.argv[1]]()
dist.destroy_process_group()
