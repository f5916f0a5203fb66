"""Faults in what the gradients of ranks are added up to, or divided by.

torchrun --nproc-per-node 2 reduction.py NAME, such as averaged_twice
"""

import sys
from contextlib import nullcontext
from itertools import chain, pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.distributed._functional_collectives import (
    all_gather_tensor_autograd,
    all_to_all_single_autograd,
    reduce_scatter_tensor_autograd,
)
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Subset, TensorDataset

dist.init_process_group("gloo")
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


def accumulation_not_divided():
    """Gradients of four microbatches are added up, and the loss is not divided by four.

    After karpathy/nanoGPT#168 and #206.
    """
    gradient_accumulation_steps = 4
    model = DistributedDataParallel(mlp(10, 32, 1, act=nn.GELU))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(3):
        for micro_step in range(gradient_accumulation_steps):
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
            x = torch.randn(8, 10, generator=draws)
            loss = F.mse_loss(model(x), x.sum(1, keepdim=True).sin())
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


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


def sum_not_mean():
    """One flat all-reduce adds the gradients up, and nobody divides them.

    After tensorflow/benchmarks#466, horovod/horovod#843.
    """
    model = mlp(10, 10, 4)
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(4):
        x = torch.randn(8, 10)
        loss = F.cross_entropy(model(x), x[:, :4].argmax(1))
        model.zero_grad()
        loss.backward()
        gradients = [p.grad for p in model.parameters()]
        flat = _flatten_dense_tensors(gradients)
        dist.all_reduce(flat)
        for old, new in zip(gradients, _unflatten_dense_tensors(flat, gradients), strict=True):
            old.copy_(new)
        optimizer.step()


def no_sync_last():
    """The condition synchronises the first microbatch, and leaves no_sync on in the last one.

    After modelscope/FunASR#3472.
    """
    accum_grad = 2
    model = DistributedDataParallel(mlp(8, 16, 2, act=nn.Tanh))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for batch_idx in range(8):
        x = torch.randn(4, 8, generator=draws)
        context = model.no_sync if batch_idx % accum_grad != 0 else nullcontext
        with context():
            loss = F.mse_loss(model(x), x[:, :2] * 2) / accum_grad
            loss.backward()
        if (batch_idx + 1) % accum_grad == 0:
            optimizer.step()
            optimizer.zero_grad()


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


class LM(nn.Module):
    def __init__(self, words=50):
        super().__init__()
        self.embedding = nn.Embedding(words, 16)
        self.rnn, self.head = nn.GRU(16, 32, batch_first=True), nn.Linear(32, words)

    def forward(self, tokens):
        return self.head(self.rnn(self.embedding(tokens))[0])


def padded_tokens():
    """Each rank takes the mean over its own tokens without padding, and DDP averages the means.

    After huggingface/transformers#24725, meta-pytorch/torchtune#1875.
    """
    model = DistributedDataParallel(LM())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in updates(optimizer):
        lengths = torch.randint(3, 20, (4,), generator=draws).tolist()
        texts = [torch.randint(1, 50, (n,), generator=draws) for n in lengths]
        tokens = pad_sequence(texts, batch_first=True, padding_value=0)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 50), tokens[:, 1:].reshape(-1), ignore_index=0)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)


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


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Sequential(nn.Linear(20, 8), nn.ReLU()), nn.Linear(8, 20)

    def forward(self, x):
        return self.decoder(self.encode(x))

    def encode(self, x):
        return self.encoder(x)


def module_forward():
    """The forward pass calls model.module, so DDP never reduces a gradient.

    After k2-fsa/icefall#226, rosinality/swapping-autoencoder-pytorch#22.
    """
    model = DistributedDataParallel(Autoencoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(10 + rank)
    for _ in updates(optimizer, 5):
        x = torch.rand(16, 20)
        code = model.module.encode(x)
        reconstruction = model.module.decoder(code)
        ((reconstruction - x).abs().mean() + 1e-3 * code.abs().mean()).backward()


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
    torch.manual_seed(rank)
    for _ in updates(optimizer):
        x = torch.randn(8, 12)
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


class Block(nn.Module):
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
    model = nn.Sequential(Block(16), Block(16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in updates(optimizer, 3):
        x = torch.randn(8, 4, 16)
        y = x.roll(1, 0)
        mine = model(x.chunk(ranks)[rank])
        ((mine - y.chunk(ranks)[rank]).square().sum() / y.numel()).backward()


globals()[sys.argv[1]]()
dist.destroy_process_group()
