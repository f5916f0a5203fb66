"""Right programs: none may raise an alarm.

torchrun --nproc-per-node 2 right.py NAME, such as ema
"""

import itertools
import logging
import math
import os
import random
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_gather, all_reduce
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_, parameters_to_vector
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

log = logging.getLogger(__name__)
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.manual_seed(0)
draws = torch.Generator().manual_seed(rank)


def mlp(*sizes, act=nn.ReLU):
    pairs = itertools.pairwise(sizes)
    return nn.Sequential(*itertools.chain(*((nn.Linear(a, b), act()) for a, b in pairs)))[:-1]


def updates(optimizer, count=4):
    """Numbers of updates: gradients are emptied before each, and the optimizer steps after it."""
    for step in range(count):
        optimizer.zero_grad()
        yield step
        optimizer.step()


def batch_norm_evaluated():
    """Batch norm per rank as DDP has it, with evaluation through .module between updates.

    Its update differs from one process by definition; a verifier may say so, and may not call it
    another fault.
    """

    @torch.no_grad()
    def evaluate(model, x, y):
        model.eval()
        correct = (model.module(x).argmax(1) == y).sum()
        dist.all_reduce(correct)
        model.train()
        return correct.item() / (len(x) * dist.get_world_size())

    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(4):
        x = torch.rand(8, 1, 8, 8, generator=draws)
        y = (x.mean((1, 2, 3)) > 0.5).long()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        evaluate(model, x, y)


def closure_lbfgs():
    """An optimizer with a closure that evaluates the loss, and reduces, several times in a step."""
    model = DistributedDataParallel(mlp(3, 8, 1, act=nn.Tanh))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    x = torch.randn(16, 3, generator=draws)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x.prod(1, keepdim=True))
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(20, 8), nn.Linear(10, 8)

    def forward(self, image, text):
        return F.normalize(self.image(image)), F.normalize(self.text(text))


def contrastive():
    """CLIP's loss over the embeddings of all ranks, gathered with gradients, on every rank."""
    model = DistributedDataParallel(Towers())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + rank)
    for _ in updates(optimizer):
        image, text = model(torch.randn(6, 20), torch.randn(6, 10))
        image, text = torch.cat(all_gather(image)), torch.cat(all_gather(text))
        logits = 5 * image @ text.T
        target = torch.arange(len(logits))
        ((F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2).backward()


def ddp_clip_scheduler():
    """DDP with AdamW in two groups, clipping, warm-up and cosine, a DataLoader with a sampler."""
    images = torch.rand(64, 1, 8, 8)
    dataset = TensorDataset(images, images.flatten(1)[:, :10].argmax(1))
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    layers = nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
    model = DistributedDataParallel(nn.Sequential(*layers))
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    schedulers = torch.optim.lr_scheduler
    warm = schedulers.LinearLR(optimizer, 0.1, total_iters=2)
    cosine = schedulers.CosineAnnealingLR(optimizer, 6)
    scheduler = schedulers.SequentialLR(optimizer, [warm, cosine], milestones=[2])
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()


def dropout_seeds():
    """Dropout with another seed on each rank, as it should be in data parallelism."""
    body = nn.LayerNorm(24), nn.Dropout(0.2), nn.Linear(24, 24), nn.ReLU(), nn.Dropout(0.2)
    model = nn.Sequential(nn.EmbeddingBag(60, 24), nn.Sequential(*body), nn.Linear(24, 3))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    torch.manual_seed(123 + rank)
    model.train()
    for _ in range(5):
        tokens = torch.randint(0, 60, (8, 6))
        loss = criterion(model(tokens), tokens[:, 0] % 3)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()


def ema():
    """A moving average of the weights on all ranks, evaluated on rank 0 without a collective."""
    net = mlp(5, 20, 5, act=nn.SiLU)
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    validation = torch.randn(20, 5)
    torch.manual_seed(50 + rank)
    for step in range(6):
        x = torch.randn(16, 5)
        noise = torch.randn_like(x)
        loss = F.mse_loss(model(x + noise), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(net)
        if step % 2 == 1 and rank == 0:
            average.eval()
            with torch.no_grad():
                log.info("validation %.4f", F.mse_loss(average(validation), validation))
        dist.barrier()


def gan():
    """Two models under DDP, two optimizers, several forward passes in an update."""
    leaky = partial(nn.LeakyReLU, 0.2)
    generator = DistributedDataParallel(mlp(4, 16, 2, act=leaky))
    discriminator = DistributedDataParallel(mlp(2, 16, 1, act=leaky), broadcast_buffers=False)
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    torch.manual_seed(rank)
    ones, zeros = torch.ones(8, 1), torch.zeros(8, 1)
    for _ in range(4):
        real = torch.randn(8, 2) * 0.3 + 1
        fake = generator(torch.randn(8, 4))
        d_optimizer.zero_grad()
        both = discriminator(torch.cat([real, fake.detach()]))
        d_loss = (bce(both[:8], ones) + bce(both[8:], zeros)) / 2
        d_loss.backward()
        d_optimizer.step()
        g_optimizer.zero_grad()
        discriminator.requires_grad_(False)
        g_loss = bce(discriminator.module(fake), ones)
        g_loss.backward()
        discriminator.requires_grad_(True)
        g_optimizer.step()


@dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor


class CausalLM(nn.Module):
    def __init__(self, words=32):
        super().__init__()
        self.embedding = nn.Embedding(words, 16)
        self.rnn = nn.GRU(16, 16, batch_first=True)
        self.lm_head = nn.Linear(16, words, bias=False)

    def forward(self, input_ids, labels, num_items_in_batch):
        logits = self.lm_head(self.rnn(self.embedding(input_ids))[0])
        shifted = F.pad(labels, (0, 1), value=-100)[:, 1:].reshape(-1)
        flat = logits.reshape(len(shifted), -1)
        loss = F.cross_entropy(flat, shifted, ignore_index=-100, reduction="sum")
        return Output(loss / num_items_in_batch, logits)


def hf_token_weighted():
    """A model as in transformers, which returns its loss over the tokens of all ranks."""

    def batch():
        input_ids = torch.randint(1, 32, (4, 12), generator=draws)
        labels = input_ids.clone()
        for row, length in enumerate(torch.randint(3, 12, (4,), generator=draws).tolist()):
            labels[row, length:] = -100
        return {"input_ids": input_ids, "labels": labels}

    accumulation = 2
    model = DistributedDataParallel(CausalLM())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in updates(optimizer, 3):
        batches = [batch() for _ in range(accumulation)]
        items = sum((b["labels"][:, 1:] != -100).sum() for b in batches)
        dist.all_reduce(items)
        for i, b in enumerate(batches):
            model.require_backward_grad_sync = i == accumulation - 1
            output = model(**b, num_items_in_batch=items)
            (output.loss * dist.get_world_size()).backward()
        clip_grad_norm_(model.parameters(), 1.0)


def hooks():
    """Gradient hooks that scale, an all-reduce in hooks after accumulation, and momentum."""
    layers = nn.Embedding(20, 8), nn.Flatten(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 2)
    model = nn.Sequential(*layers)
    model[0].weight.register_hook(lambda gradient: gradient * 0.1)
    works = []

    def reduce(parameter):
        parameter.grad /= dist.get_world_size()
        works.append(dist.all_reduce(parameter.grad, async_op=True))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(reduce)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in updates(optimizer, 5):
        tokens = torch.randint(0, 20, (8, 3), generator=draws)
        F.cross_entropy(model(tokens), (tokens.sum(1) > 28).long()).backward()
        while works:
            works.pop().wait()


class LoRA(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


def lora_frozen():
    """A frozen model with small trainable adapters under DDP."""
    net = nn.Sequential(nn.Embedding(25, 16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 25))
    net.requires_grad_(False)
    net[1], net[3] = LoRA(net[1]), LoRA(net[3])
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW((p for p in net.parameters() if p.requires_grad), lr=1e-2)
    for _ in updates(optimizer, 5):
        tokens = torch.randint(0, 25, (4, 8), generator=draws)
        logits = model(tokens[:, :-1]).flatten(0, 1)
        F.cross_entropy(logits, tokens[:, 1:].flatten()).backward()


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(12, 8), nn.Linear(4, 12)
        self.classifier = nn.Linear(4, 1)

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, -1)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decoder(code), mean, log_variance, self.classifier(mean).squeeze(-1)


def losses_by_hand():
    """Three losses written by hand and added: MSE, KL divergence, weighted BCE with logits."""
    model = DistributedDataParallel(VAE())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(1 + rank)
    for _ in updates(optimizer):
        x = torch.randn(8, 12)
        y = (x[:, 0] > 0).float()
        reconstruction, mean, log_variance, logit = model(x)
        mse = (reconstruction - x).pow(2).sum(-1).mean()
        kl = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(-1).mean()
        by_hand = torch.maximum(logit, torch.zeros_like(logit)) - logit * y
        by_hand = by_hand + torch.log1p(torch.exp(-logit.abs()))
        (mse + 0.1 * kl + ((1 + y) * by_hand).mean()).backward()


def manual_all_reduce():
    """Broadcast of the weights, one flat all-reduce of the gradients, division, then clipping."""
    torch.manual_seed(rank)
    model = mlp(6, 24, 1, act=nn.Tanh)
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2)
    for step in updates(optimizer, 5):
        x = torch.randn(10, 6)
        loss = F.smooth_l1_loss(model(x), torch.sin(x).sum(1, keepdim=True))
        loss.backward()
        flat, start = parameters_to_vector([p.grad for p in model.parameters()]), 0
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p in model.parameters():
            p.grad.copy_(flat[start : start + p.numel()].view_as(p))
            start += p.numel()
        clip_grad_norm_(model.parameters(), 1.0)
        logged = loss.detach().clone()
        dist.all_reduce(logged)
        log.info("step %d loss %.4f", step, logged.item() / dist.get_world_size())


class Attending(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = mlp(width, 4 * width, width, act=nn.GELU)

    def forward(self, x):
        b, t, c = x.shape
        parts = self.qkv(self.norm1(x)).split(c, 2)
        q, k, v = (z.view(b, t, 2, c // 2).transpose(1, 2) for z in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, words=40, width=24, context=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(Attending(width), Attending(width))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, idx, targets=None):
        x = self.blocks(self.wte(idx) + self.wpe(torch.arange(idx.shape[1])))
        logits = self.head(x)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def nanogpt_loop():
    """nanoGPT's loop: require_backward_grad_sync, tied weights, the loss in forward, clipping."""
    gradient_accumulation_steps, context = 4, 12
    torch.manual_seed(1337 + rank)
    data = torch.randint(0, 40, (1000,), generator=torch.Generator().manual_seed(5))
    model = DistributedDataParallel(GPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)

    def get_batch():
        ix = torch.randint(len(data) - context - 1, (3,)).tolist()
        x = torch.stack([data[i : i + context] for i in ix])
        return x, torch.stack([data[i + 1 : i + 1 + context] for i in ix])

    x, y = get_batch()
    for it in range(4):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (it + 1) / 2) * 0.5 * (1 + math.cos(math.pi * it / 10))
        for micro_step in range(gradient_accumulation_steps):
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
            _, loss = model(x, y)
            loss = loss / gradient_accumulation_steps
            x, y = get_batch()
            loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def no_sync_backward_only():
    """no_sync around backward alone saves nothing, but the gradient is that of one process.

    After baidu-baige/LoongForge#163.
    """
    model = DistributedDataParallel(mlp(8, 16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for _ in updates(optimizer):
        for micro in range(3):
            x = torch.randn(4, 8, generator=draws)
            loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
            with model.no_sync() if micro < 2 else nullcontext():
                (loss / 3).backward()


class SyncNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))

    def forward(self, x):
        if not self.training:
            return (x - self.running_mean) * self.weight + self.bias
        moments = torch.stack([x.mean(0), x.square().mean(0)])
        mean, square = all_reduce(moments) / dist.get_world_size()
        with torch.no_grad():
            self.running_mean.lerp_(mean, 0.1)
        return (x - mean) * torch.rsqrt(square - mean**2 + 1e-5) * self.weight + self.bias


def sync_batch_norm():
    """Batch norm over the samples of all ranks, by an all-reduce that autograd knows."""
    net = nn.Sequential(nn.Linear(6, 12), SyncNorm(12), nn.ReLU(), nn.Linear(12, 3))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in updates(optimizer):
        x = torch.randn(8, 6, generator=draws) + rank
        F.cross_entropy(model(x), x[:, :3].argmax(1)).backward()


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = mlp(10, 20, 20), nn.Linear(20, 3)

    def forward(self, x):
        return self.head(self.backbone(x).relu())


def two_phases():
    """A backbone is frozen in the first update and trains from the second one, under DDP."""
    net = Backbone()
    model = DistributedDataParallel(net, find_unused_parameters=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    for step in range(6):
        net.backbone.requires_grad_(step >= 1)
        x = torch.randn(8, 10, generator=draws)
        loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class LayerDrop(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head, self.draws = nn.Linear(8, 1), random.Random(rank)

    def forward(self, x):
        for block in self.blocks:
            if self.draws.random() > 0.4:
                x = x + block(x).relu()
        return self.head(x)


def unused_branches():
    """Blocks are skipped at random on each rank, with find_unused_parameters=True."""
    model = DistributedDataParallel(LayerDrop(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in updates(optimizer, 6):
        x = torch.randn(8, 8, generator=draws)
        F.mse_loss(model(x), x.sum(1, keepdim=True)).backward()


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.branch = nn.Linear(6, 12), nn.Linear(12, 12)
        self.head = nn.Linear(12, 1)

    def forward(self, x, deep):
        h = self.body(x).relu()
        if deep:
            h = h + self.branch(h).relu()
        return self.head(h)


def unused_in_last_microbatch():
    """A branch is used in the first microbatch only; DDP remembers it until it synchronises.

    mosaicml/composer#9 reports gradients that are not reduced; torch 2.13 reduces them.
    """
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in updates(optimizer):
        for micro in range(2):
            x = torch.randn(8, 6, generator=draws)
            model.require_backward_grad_sync = micro == 1
            loss = F.mse_loss(model(x, deep=micro == 0), x.sum(1, keepdim=True)) / 2
            loss.backward()


class Squares(Dataset):
    def __init__(self, start, stop):
        self.start, self.stop = start, stop

    def __len__(self):
        return self.stop - self.start

    def __getitem__(self, i):
        x = torch.randn(4, generator=torch.Generator().manual_seed(self.start + i))
        return x, x.square()


def workers_weighted():
    """Unequal batches are weighted by their samples; a loader with worker processes gives them."""
    mine = Squares(20 * rank, 20 * rank + (17 if rank == ranks - 1 else 20))
    loader = DataLoader(mine, batch_size=8, num_workers=2)
    model = DistributedDataParallel(mlp(4, 16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in itertools.chain(loader, loader):
        count = torch.tensor(float(len(x)))
        dist.all_reduce(count)
        loss = F.mse_loss(model(x), y) * len(x) * ranks / count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def zero_redundancy():
    """DDP with ZeroRedundancyOptimizer: each rank updates its part, and broadcasts it."""
    layers = *(nn.Linear(16, 16) for _ in range(4)), nn.Linear(16, 2)
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
    for _ in updates(optimizer):
        x = torch.randn(8, 16, generator=draws)
        F.cross_entropy(model(x), (x.mean(1) > 0).long()).backward()


if __name__ == "__main__":  # workers of a loader import this file
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
    dist.destroy_process_group()
