"""A small language model under DDP or FSDP, in as many ways as people train one.

torchrun --nproc-per-node 2 language.py [way …]: what is right, and what is wrong, by name.
"""

import contextlib
import copy
import functools
import hashlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

WAYS = set(sys.argv[1:])
WORDS, WIDTH, LENGTH, PADDING = 32, 16, 8, -100
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.2 if WAYS & {"dropout", "wrong_recompute"} else 0.0)

    def forward(self, x):
        q, k, v = (
            self.qkv(self.norm1(x)).view(*x.shape[:2], 3, 2, WIDTH // 2).permute(2, 0, 3, 1, 4)
        )
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.proj(a.transpose(1, 2).reshape(x.shape)))
        return x + self.drop(self.down(functional.gelu(self.up(self.norm2(x)))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        if "tied" in WAYS:
            self.head.weight = self.embedding.weight

    def encode(self, x):
        return self(x)

    def forward(self, x, labels=None, count=None):
        x = self.embedding(x)
        for block in self.blocks:
            if WAYS & {"checkpoint", "reentrant"}:
                x = checkpoint(block, x, use_reentrant="reentrant" in WAYS)
            elif "wrong_recompute" in WAYS:
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x)
        logits = self.head(self.norm(x))
        if labels is None:
            return logits
        kind = "mean" if count is None else "sum"
        flat = logits.flatten(0, 1), labels.flatten()
        loss = functional.cross_entropy(*flat, ignore_index=PADDING, reduction=kind)
        return {"loss": loss if count is None else loss / count, "logits": logits}


def batch(step, samples=4):
    """Samples of this rank; under `padded`, a part of each is padding."""
    own = 0 if "wrong_equal" in WAYS else rank
    drawn = torch.Generator().manual_seed(100 * step + own)
    x = torch.randint(0, WORDS, (samples, LENGTH + 1), generator=drawn)
    x, y = x[:, :-1], x[:, 1:].clone()
    if WAYS & {"padded", "wrong_means"}:
        for row, kept in enumerate(torch.randint(2, LENGTH, (samples,), generator=drawn).tolist()):
            y[row, kept:] = PADDING
    return x, y


torch.manual_seed(rank if "wrong_seed" in WAYS else 0)
model = Model()
if "half" in WAYS:
    model.to(torch.bfloat16)
if "frozen" in WAYS:
    model.embedding.requires_grad_(False)
early = torch.optim.AdamW(model.parameters(), lr=1e-2) if "wrong_early" in WAYS else None
is_fsdp = bool(WAYS & {"fsdp", "hsdp", "policy"})
if is_fsdp:
    shape = (2, ranks // 2) if "hsdp" in WAYS else (ranks,)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if "policy" in WAYS else None
    norms = [one for one in model.modules() if isinstance(one, nn.LayerNorm)]
    ignored = {p for one in norms for p in one.parameters()} if "wrong_ignored" in WAYS else None
    shard = functools.partial(fully_shard, mesh=mesh, ignored_params=ignored,
                              **({"mp_policy": policy} if policy else {}))  # fmt: skip
    for block in model.blocks:
        shard(block)
    wrapped = model if "wrong_root" in WAYS else shard(model)
    if "method" in WAYS:
        register_fsdp_forward_method(model, "encode")
elif WAYS & {"by_hand", "wrong_seed", "wrong_sum"}:
    wrapped = model
else:
    wrapped = DistributedDataParallel(model)
trained = [one for one in model.parameters() if one.requires_grad]
if "wrong_missing" in WAYS:
    trained = trained[:-1]
if "sgd" in WAYS:
    optimizers = [torch.optim.SGD(trained, lr=0.1, momentum=0.9, nesterov=True)]
elif "two_optimizers" in WAYS:
    optimizers = [torch.optim.AdamW(trained[:3], lr=1e-3), torch.optim.SGD(trained[3:], lr=0.1)]
else:
    optimizers = [early or torch.optim.AdamW(trained, lr=1e-2)]
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizers[0], lambda step: 1 / (1 + step))
average = copy.deepcopy(model) if "ema" in WAYS else None
parts = (
    4
    if WAYS & {"accumulate", "wrong_undivided", "wrong_scheduler", "wrong_last", "wrong_zeroed"}
    else 1
)
if "dropout" in WAYS:  # masks of ranks differ, as those of samples in one process
    torch.manual_seed(1000 + (0 if "one_seed" in WAYS else rank))
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled="scaler" in WAYS)


def value(x, y):
    """The loss of a microbatch."""
    caller = model if "wrong_bypass" in WAYS else wrapped
    cast = WAYS & {"autocast"}
    with torch.autocast("cpu", torch.bfloat16) if cast else contextlib.nullcontext():
        if "inside" in WAYS:
            if "padded" in WAYS:
                count = (y != PADDING).sum()
                dist.all_reduce(count)
                return caller(x, y, count)["loss"] * ranks
            return caller(x, labels=y)["loss"]
        logits = caller.encode(x) if "method" in WAYS else caller(x)
    if "squares" in WAYS:
        return (logits - functional.one_hot(y, WORDS)).square().mean()
    if "chunked" in WAYS:
        flat = zip(logits.flatten(0, 1).chunk(3), y.flatten().chunk(3), strict=True)
        return sum(functional.cross_entropy(a, b, reduction="sum") for a, b in flat) / y.numel()
    if "smooth" in WAYS:
        return nn.CrossEntropyLoss(label_smoothing=0.1)(logits.flatten(0, 1), y.flatten())
    if "padded" in WAYS:
        each = functional.cross_entropy(logits.flatten(0, 1).float(), y.flatten(), reduction="none")
        count = (y != PADDING).sum()
        dist.all_reduce(count)
        return each.sum() / count * ranks
    return functional.cross_entropy(logits.flatten(0, 1).float(), y.flatten())


for step in range(4):
    if "wrong_not_zeroed" not in WAYS:
        for one in optimizers:
            one.zero_grad()
    for part in range(parts):
        x, y = batch(10 * step + part)
        is_last = part == parts - 1
        is_silent = not is_last and not is_fsdp
        if "wrong_no_sync" in WAYS or ("wrong_last" in WAYS and is_last):
            is_silent = True
        elif "wrong_last" in WAYS:
            is_silent = False
        if is_fsdp and "quiet" in WAYS:
            wrapped.set_requires_gradient_sync(is_last and "wrong_silent" not in WAYS)
        with wrapped.no_sync() if is_silent and wrapped is not model else contextlib.nullcontext():
            loss = value(x, y)
            if "accumulate" in WAYS or "wrong_scheduler" in WAYS:
                loss = loss / parts
            if "wrong_twice" in WAYS:
                loss = loss / ranks
            if "wrong_zeroed" in WAYS:
                optimizers[0].zero_grad()
            scaler.scale(loss).backward()
        if "wrong_scheduler" in WAYS:
            scheduler.step()
    if "wrong_clip_first" in WAYS:
        nn.utils.clip_grad_norm_(trained, 0.1)
    if WAYS & {"by_hand", "wrong_sum", "wrong_clip_first", "wrong_seed"}:
        for one in model.parameters():
            dist.all_reduce(one.grad)
            one.grad /= 1 if "wrong_sum" in WAYS else ranks
    if "clip" in WAYS:
        for one in optimizers:
            scaler.unscale_(one)
        nn.utils.clip_grad_norm_(trained, 0.1)
    if "clip_by_hand" in WAYS:
        square = torch.stack([one.grad.norm() for one in trained]).norm() ** 2
        if "by_hand" in WAYS:  # its gradients are reduced after the backward pass
            dist.all_reduce(square)
            square /= ranks
        for one in trained:
            one.grad.mul_(min(1.0, 0.1 / square.sqrt().item()))
    if "wrong_shard_norm" in WAYS:
        norm = torch.stack([one.grad.to_local().norm() for one in trained]).norm()
        for one in trained:
            one.grad.mul_(min(1.0, 0.05 / norm.item()))
    for one in optimizers:
        scaler.step(one)
    scaler.update()
    scheduler.step()
    if average:
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.1)
    if "wrong_counted" in WAYS and rank == 0 and step == 1:
        dist.all_reduce(torch.ones(2))
    if "wrong_saved" in WAYS and rank == 0 and step == 1:
        get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if "wrong_rank0" in WAYS and rank == 0 and step == 1:
        dist.barrier()
if rank == 0:
    parts = (one.to_local() if hasattr(one, "to_local") else one for one in model.parameters())
    bits = b"".join(one.detach().float().numpy().tobytes() for one in parts)
    print("digest", hashlib.sha256(bits).hexdigest(), loss.item().hex(), flush=True)
dist.barrier()
dist.destroy_process_group()
