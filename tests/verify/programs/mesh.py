"""Tensor and sequence parallelism, alone and with FSDP or DDP, and a pipeline.

torchrun --nproc-per-node 4 mesh.py [way …]: what is right, and what is wrong, by name.
"""

import contextlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional

WAYS = set(sys.argv[1:])
WORDS, WIDTH, LENGTH = 32, 16, 8
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batch(seed, samples=4):
    x = torch.randint(
        0, WORDS, (samples, LENGTH + 1), generator=torch.Generator().manual_seed(seed)
    )
    return x[:, :-1], x[:, 1:]


def split(model, mesh):
    """Divide the model among the ranks of a mesh of one axis."""
    is_sequence = "sequence" in WAYS
    inner = Shard(1) if is_sequence else Replicate()
    for block in model.blocks:
        plan = {
            "up": ColwiseParallel(input_layouts=inner),
            "down": RowwiseParallel(output_layouts=inner),
        }
        if is_sequence:
            plan["norm"] = SequenceParallel()
        parallelize_module(block, mesh, plan)
    logits = Shard(-1) if "loss_parallel" in WAYS else Replicate()
    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=inner),
        "head": ColwiseParallel(input_layouts=inner, output_layouts=logits,
                                use_local_output="loss_parallel" not in WAYS),
    }  # fmt: skip
    if is_sequence:
        plan["norm"] = SequenceParallel()
    parallelize_module(model, mesh, plan)


def change(model, mesh):
    """What the program does to gradients."""
    if "ddp" in WAYS:  # by hand
        for one in model.parameters():
            local = one.grad.to_local() if isinstance(one.grad, DTensor) else one.grad
            dist.all_reduce(local, group=mesh["data"].get_group())
            local /= ranks // 2
    if "wrong_norms" in WAYS:
        for name, one in model.named_parameters():
            if "norm" in name:
                one.grad = one.grad * 2


def meshes():
    """Train over one or two axes."""
    torch.manual_seed(0)
    model, index = Model(), 0
    if WAYS & {"fsdp", "ddp"}:
        mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("data", "tensor"))
        split(model, mesh["tensor"])
        index = mesh["data"].get_local_rank()
    else:
        mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("tensor",))
        split(model, mesh)
    wrapped = model
    if "fsdp" in WAYS:
        for block in model.blocks:
            fully_shard(block, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])
    index = rank if "wrong_batches" in WAYS else index
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    for step in range(3):
        x, y = batch(100 * step + index)
        optimizer.zero_grad()
        logits = wrapped(x)
        with loss_parallel() if "loss_parallel" in WAYS else contextlib.nullcontext():
            functional.cross_entropy(logits.flatten(0, 1), y.flatten()).backward()
        change(model, mesh)
        if "clip" in WAYS:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


def pipeline():
    """Train the stages of a pipeline."""
    torch.manual_seed(rank)
    layers = [nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)]
    stage = PipelineStage(nn.Sequential(*layers), rank, ranks, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, nn.functional.mse_loss)
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.1)
    for step in range(3):
        inputs = torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(inputs)
        elif rank == ranks - 1:
            schedule.step(target=inputs.tanh(), losses=[])
        else:
            schedule.step()
        if "wrong_stage_norm" in WAYS:
            nn.utils.clip_grad_norm_(stage.submod.parameters(), 0.05)
        if "clip" in WAYS:
            own = torch.stack([one.grad.norm() for one in stage.submod.parameters()]).norm() ** 2
            dist.all_reduce(own)
            for one in stage.submod.parameters():
                one.grad *= min(1.0, 0.05 / own.sqrt().item())
        optimizer.step()


if "pipeline" in WAYS:
    pipeline()
else:
    meshes()
dist.barrier()
dist.destroy_process_group()
