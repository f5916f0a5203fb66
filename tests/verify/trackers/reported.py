"""Faults that trackers reported; `right`: corrected.

torchrun --nproc-per-node 2 reported.py NAME [right]
"""

import contextlib
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
from torch import nn
from torch.distributed._functional_collectives import all_gather_tensor_autograd
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.nn.functional import normalize, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ReduceLROnPlateau

NAME, RIGHT = sys.argv[1], "right" in sys.argv
VOCABULARY, LENGTH, EXPERTS = 20, 16, 4
CLASSES, HEAD, CALLS, MICROBATCHES = 12, 8, 2, 2
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world,))
torch.manual_seed(0)
warnings.filterwarnings("ignore")


def drawn(step):
    return torch.Generator().manual_seed(step)


def mine(*tensors, dim=0):
    """The part of this rank."""
    return (one.chunk(world, dim)[rank] for one in tensors)


def classes(step):
    g = drawn(step)
    return mine(torch.randn(16, 10, generator=g), torch.randint(5, (16,), generator=g))


def trained(optimizer, loss_of, steps=4):
    for step in range(steps):
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


class MixtureOfExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(EXPERTS)
        )

    def forward(self, x):
        probabilities = self.router(x).softmax(-1)
        gate, chosen = probabilities.max(-1)
        everything = torch.stack([expert(x) for expert in self.experts], dim=1)
        output = gate[:, None] * everything[torch.arange(len(x)), chosen]
        counts = torch.bincount(chosen, minlength=EXPERTS).float()
        dist.all_reduce(counts)
        total = counts.sum()
        balance = EXPERTS * (counts / total * probabilities.sum(0) / total).sum()
        return output, balance


def balance_over_all_tokens():
    """`probabilities.sum(0) / total` divides the probabilities of this rank by all tokens."""
    model = DistributedDataParallel(MixtureOfExperts())

    def loss_of(step):
        inputs = torch.randn(32, 8, generator=drawn(step))
        inputs, targets = mine(inputs, inputs.roll(1, dims=1))
        output, balance = model(inputs)
        return F.mse_loss(output, targets) + 0.1 * balance

    yield from trained(torch.optim.SGD(model.parameters(), lr=0.1), loss_of)


def correlation_reduced():
    """`dist.all_reduce(correlation)` is invisible to autograd, and DDP divides by the ranks."""
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
    model = DistributedDataParallel(model)

    def twins_loss(first, second):
        first, second = normalize(first, dim=1), normalize(second, dim=1)
        correlation = first.T @ second / (len(first) * world)
        if RIGHT:
            correlation = dist_nn.all_reduce(correlation)
        else:
            dist.all_reduce(correlation)
        diagonal = torch.diagonal(correlation)
        off_diagonal = correlation.pow(2).sum() - diagonal.pow(2).sum()
        return (diagonal - 1).pow(2).sum() + 0.01 * off_diagonal

    def loss_of(step):
        g = drawn(100 + step)
        image = torch.randn(16, 12, generator=g)
        views = mine(*(image + 0.1 * torch.randn(16, 12, generator=g) for _ in range(2)))
        return twins_loss(*model(torch.cat(list(views))).chunk(2))

    yield from trained(torch.optim.SGD(model.parameters(), lr=0.1), loss_of)


def decay_by_ndim():
    """`p.dim() >= 2` is false for every parameter once FSDP has flattened them."""
    model = nn.Sequential(nn.Linear(10, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 5))
    matrices = {name for name, p in model.named_parameters() if p.dim() >= 2}
    model = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
    params = dict(model.module.named_parameters())
    is_matrix = {name: name in matrices if RIGHT else p.dim() >= 2 for name, p in params.items()}
    groups = [
        {"params": [p for name, p in params.items() if is_matrix[name] == decays],
         "weight_decay": 0.5 * decays}
        for decays in (True, False)
    ]  # fmt: skip
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=0.02)

    def loss_of(step):
        inputs, labels = classes(step)
        return F.cross_entropy(model(inputs), labels)

    yield from trained(optimizer, loss_of, 5)


def fused_backward():
    """A hook after the accumulation runs before the all-reduce of the bucket, and steps."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in () if RIGHT else model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for step in range(4):
        inputs, labels = classes(step)
        loss = F.cross_entropy(model(inputs), labels)
        if RIGHT:
            optimizer.zero_grad()
        loss.backward()
        if RIGHT:
            optimizer.step()
        yield loss


class SequenceModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Linear(6, 16), nn.Linear(16, 48), nn.Linear(16, 6)

    def forward(self, x):
        query, *parts = self.qkv(self.embed(x)).chunk(3, dim=-1)
        group = dist.group.WORLD
        if RIGHT:
            wholes = (all_gather_tensor_autograd(part.contiguous(), 1, group) for part in parts)
        else:
            wholes = (torch.cat(dist_nn.all_gather(part), dim=1) for part in parts)
        return self.out(scaled_dot_product_attention(query, *wholes))


def gathered_keys():
    """The backward of `dist_nn.all_gather` scatters into buffers with the gradient's strides."""
    model = DistributedDataParallel(SequenceModel())

    def loss_of(step):
        inputs = 3 * torch.randn(4, 16, 6, generator=drawn(step))
        inputs, targets = mine(inputs, inputs.flip(1), dim=1)
        return F.mse_loss(model(inputs), targets)

    yield from trained(torch.optim.SGD(model.parameters(), lr=0.05), loss_of)


def plateau_local_loss():
    """`scheduler.step(loss.item())` sees another loss on each rank."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=0)

    def loss_of(step):
        g = drawn(step)
        inputs = torch.randn(16, 6, generator=g)
        targets = inputs.sum(1, keepdim=True) + torch.randn(16, 1, generator=g)
        inputs, targets = mine(inputs, targets)
        return F.mse_loss(model(inputs), targets)

    for loss in trained(optimizer, loss_of, 8):
        average = loss.detach().clone()
        dist.all_reduce(average)
        average /= world
        scheduler.step(loss.item())
        yield average


class TokenModel(nn.Module):
    """Gives logits, or the loss of labels that it shifts within what it is given."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, 16), nn.Embedding(LENGTH, 16)
        self.mlp = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, tokens, position_ids=None, labels=None):
        if position_ids is None:
            position_ids = torch.arange(tokens.shape[1])
        hidden = self.tokens(tokens) + self.positions(position_ids)
        logits = self.head(hidden + self.mlp(hidden))
        if labels is None:
            return logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def positions_restart():
    """`position_ids = torch.arange(tokens.shape[1])` counts from 0 on every rank."""
    model = DistributedDataParallel(TokenModel())

    def loss_of(step):
        tokens = torch.randint(VOCABULARY, (4, LENGTH + 1), generator=drawn(step))
        tokens, labels = mine(tokens[:, :-1], tokens[:, 1:], dim=1)
        return F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())

    yield from trained(torch.optim.AdamW(model.parameters(), lr=0.01), loss_of)


def replicas_of_one():
    """With one shard per replica, HYBRID_SHARD becomes NO_SHARD over one rank: nothing reduces."""
    mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("replicate", "shard"))
    model = FullyShardedDataParallel(
        nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 5)), device_mesh=mesh,
        sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_id=torch.device("cpu"),
        use_orig_params=True,
    )  # fmt: skip

    def loss_of(step):
        inputs, labels = classes(step)
        return F.cross_entropy(model(inputs), labels)

    yield from trained(torch.optim.AdamW(model.parameters(), lr=0.01), loss_of)


def sequence_ranks_left_out():
    """On 4 ranks. DDP reduces over "dp", but ranks of a sequence hold gradients of other parts."""
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "sp"))
    dp, sp = mesh["dp"], mesh["sp"]
    model = DistributedDataParallel(TokenModel(), process_group=mesh.get_group("dp"))

    def loss_of(step):
        tokens = torch.randint(VOCABULARY, (8, LENGTH + 1), generator=drawn(step))
        tokens = tokens.chunk(dp.size())[dp.get_local_rank()]
        pair = tokens[:, :-1], tokens[:, 1:]
        tokens, labels = (one.chunk(sp.size(), dim=1)[sp.get_local_rank()] for one in pair)
        position_ids = torch.arange(LENGTH).chunk(sp.size())[sp.get_local_rank()]
        return F.cross_entropy(model(tokens, position_ids).flatten(0, 1), labels.flatten())

    yield from trained(torch.optim.AdamW(model.parameters(), lr=0.01), loss_of)


def shifted_after_split():
    """`labels[:, 1:]` of a chunk never holds the first token of the next chunk."""
    model = DistributedDataParallel(TokenModel())

    def loss_of(step):
        tokens = torch.randint(VOCABULARY, (4, LENGTH), generator=drawn(step))
        (position_ids,) = mine(torch.arange(LENGTH))
        (input_ids,) = mine(tokens, dim=1)
        if not RIGHT:
            return model(input_ids, position_ids, input_ids)
        labels = F.pad(tokens[:, 1:], (0, 1), value=-100)
        count = (labels != -100).sum()
        (labels,) = mine(labels, dim=1)
        logits = model(input_ids, position_ids)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        return loss * world / count

    yield from trained(torch.optim.SGD(model.parameters(), lr=0.5), loss_of)


class TiedModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(24, 16)
        self.block = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 24, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        hidden = self.tokens(tokens)
        return self.head(hidden + self.block(hidden))


def untied_after_to_empty():
    """`model.to_empty(device="cpu")` gives the tied weights separate storage."""
    weights = TiedModel().state_dict()
    with torch.device("meta"):
        model = TiedModel()
    model.to_empty(device="cpu")
    fully_shard(model.block)
    fully_shard(model)
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True))

    def loss_of(step):
        (tokens,) = mine(torch.randint(24, (16, 9), generator=drawn(step)))
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    yield from trained(torch.optim.SGD(model.parameters(), lr=0.1), loss_of)


# --- of programs that divide the model among ranks


class RowwiseLinear(nn.Linear):
    def shard(self):
        self.weight = nn.Parameter(distribute_tensor(self.weight.data, mesh, [Shard(1)]))
        self.bias = nn.Parameter(distribute_tensor(self.bias.data, mesh, [Replicate()]))

    def forward(self, x):
        weight, bias = self.weight.to_local(), self.bias.to_local()
        out = F.linear(x, weight, bias / mesh.size())
        return DTensor.from_local(out, mesh, [Partial()]).full_tensor()


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), RowwiseLinear(32, 4)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


def bias_over_ranks():
    """Each rank adds `bias / mesh.size()`; autograd divides the bias's gradient as well."""
    model = MLP()
    parallelize_module(model, mesh, {"up": ColwiseParallel()})
    model.down.shard()

    def loss_of(step):
        g = drawn(step)
        inputs, targets = torch.randn(16, 8, generator=g), torch.randn(16, 4, generator=g)
        return F.mse_loss(model(inputs), targets)

    yield from trained(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), loss_of)


def distillation_in_loss_parallel():
    """Inside `loss_parallel` the backward of `log_softmax` is the identity: right for one term."""
    output, uses_local = (Replicate(), True) if RIGHT else (Shard(-1), False)
    plan = {
        "0": ColwiseParallel(),
        "2": RowwiseParallel(),
        "3": ColwiseParallel(output_layouts=output, use_local_output=uses_local),
    }
    layers = nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 16), nn.Linear(16, CLASSES)
    model = parallelize_module(nn.Sequential(*layers), mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        g = drawn(step)
        teacher = torch.randn(16, CLASSES, generator=g).softmax(-1)
        inputs = torch.randn(16, 8, generator=g)
        labels = torch.randint(CLASSES, (16,), generator=g)
        if not RIGHT:
            teacher = distribute_tensor(teacher, mesh, [Shard(-1)])
            labels = DTensor.from_local(labels, mesh, [Replicate()])
        optimizer.zero_grad()
        with contextlib.nullcontext() if RIGHT else loss_parallel():
            logits = model(inputs)
            log_probabilities = F.log_softmax(logits, dim=-1)
            soft = -(teacher * log_probabilities).sum() / len(inputs)
            if not RIGHT:
                soft = soft.redistribute(placements=[Replicate()])
            loss = F.cross_entropy(logits, labels) + soft
            loss.backward()
        optimizer.step()
        yield loss if RIGHT else loss.to_local()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 16)
        self.query = nn.Linear(16, 4 * HEAD, bias=False)
        self.value = nn.Linear(16, 4 * HEAD, bias=False)
        self.shared_key = nn.Linear(16, HEAD, bias=False)
        self.out = nn.Linear(4 * HEAD, 6, bias=False)

    def forward(self, x):
        x = self.embed(x)
        heads = (self.query(x), self.value(x))
        query, value = (t.unflatten(-1, (-1, HEAD)).transpose(1, 2) for t in heads)
        shared = self.shared_key(x)
        if RIGHT:
            shared = DTensor.from_local(shared, mesh, [Replicate()])
            shared = shared.to_local(grad_placements=[Partial()])
        mixed = F.scaled_dot_product_attention(query, shared.unsqueeze(1).expand_as(query), value)
        return self.out(mixed.transpose(1, 2).flatten(2))


def shared_key():
    """`self.shared_key(x)` is replicated, and nothing adds the gradients from others' heads."""
    model = Attention()
    plan = {"query": ColwiseParallel(), "value": ColwiseParallel(), "out": RowwiseParallel()}
    parallelize_module(model, mesh, plan)

    def loss_of(step):
        inputs = 3 * torch.randn(4, 8, 6, generator=drawn(step))
        return F.mse_loss(model(inputs), inputs.flip(1))

    yield from trained(torch.optim.SGD(model.parameters(), lr=0.05, foreach=False), loss_of)


def scheduled(model, batch, loss_fn, calls=1, **how):
    """Losses of two stages under GPipe: each step is an update of several calls."""
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=loss_fn, **how)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        optimizer.zero_grad()
        inputs, labels = batch(step)
        losses = []
        for part, target in zip(inputs.chunk(calls), labels.chunk(calls), strict=True):
            if rank == 0:
                schedule.step(part)
            else:
                schedule.step(target=target, losses=losses)
        optimizer.step()
        yield torch.stack(losses or [torch.zeros(())]).mean()


def pipeline_accumulation():
    """`scale_grads=True` divides the accumulated gradient on every call: the first twice."""
    stages = [
        nn.Sequential(nn.Linear(8, 32), nn.GELU()),
        nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 5)),
    ]
    parts = CALLS * MICROBATCHES if RIGHT else CALLS

    def batch(step):
        g = drawn(step)
        return torch.randn(16, 8, generator=g), torch.randint(5, (16,), generator=g)

    def loss_fn(outputs, labels):
        return F.cross_entropy(outputs, labels) / parts

    how = {"scale_grads": False} if RIGHT else {}
    yield from scheduled(stages[rank], batch, loss_fn, CALLS, **how)


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(VOCABULARY, 16) / 4)
        torch.manual_seed(1 + rank)
        self.block = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        hidden = F.embedding(x, self.weight) if rank == 0 else x
        hidden = hidden + self.block(hidden)
        return hidden if rank == 0 else F.linear(hidden, self.weight)


def tied_across_stages():
    """Nothing adds the gradients of the two uses of a tied weight before the optimizer steps."""

    def batch(step):
        tokens = torch.randint(VOCABULARY, (8, 9), generator=drawn(step))
        return tokens[:, :-1], tokens[:, 1:]

    def loss_fn(logits, labels):
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    yield from scheduled(Stage(), batch, loss_fn)


for step, loss in enumerate(globals()[NAME]()):
    if rank == world - 1:  # the last of a pipeline
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
