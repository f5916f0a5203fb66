r"""A complete FSDP program: every rank keeps a shard of the model and of its state.

On two CPU processes, and on a node with eight GPUs:

    torchrun --standalone --nproc-per-node 2 complete_fsdp.py
    torchrun --standalone --nproc-per-node 8 complete_fsdp.py --size large --length 1024 \
        --batch 256 --steps 1000 --learning-rate 3e-4 --checkpoints checkpoints
"""

import argparse
import math
import os
import time
import zlib
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from resume import Resumable, ResumableSampler, Stop, batches, evaluate  # beside this file
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

VOCABULARY = 64
SIZES = {"tiny": (2, 64), "small": (12, 768), "large": (24, 2048)}  # blocks, width
PADDING = -100  # as a target, cross_entropy ignores it


class Sequences(Dataset):
    """Sequences of many lengths that count up. Replace them by your own samples."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return 100_000

    def __getitem__(self, drawn):
        epoch, index = drawn
        # Draw random augmentation from a generator like this: a resumed run repeats it.
        generator = torch.Generator().manual_seed(epoch * len(self) + index)
        start, stride, cut = torch.randint(VOCABULARY, (3,), generator=generator)
        tokens = (start + stride % 4 * torch.arange(self.length + 1)) % VOCABULARY
        tokens[len(tokens) - cut % (self.length // 2) :] = PADDING
        return tokens


class Transformer(nn.Module):
    """The loss of the next token, summed over tokens. Replace it by your own model."""

    def __init__(self, num_blocks, width, length, dropout):
        super().__init__()
        sizes = {"d_model": width, "nhead": width // 64, "dim_feedforward": 4 * width}
        how = {"dropout": dropout, "batch_first": True, "norm_first": True}
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(**sizes, **how) for _ in range(num_blocks)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = self.token(inputs.clamp(min=0)) + self.position.weight[: inputs.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], x.device)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        logits = self.head(self.norm(x)).float().flatten(0, 1)
        return cross_entropy(logits, targets.flatten(), ignore_index=PADDING, reduction="sum")


class Training(Resumable):
    """What a checkpoint holds, and a step."""

    def take_step(self, microbatches, device):
        """Update the model; this rank's share of the mean loss, the norm, and the tokens."""
        self.step += 1
        # Dropout follows from step and rank, so a resumed run repeats it.
        torch.manual_seed(self.step * dist.get_world_size() + dist.get_rank())
        microbatches = [samples.to(device, non_blocking=True) for samples in microbatches]
        # A mean over all tokens of the step: those of a short microbatch weigh no more.
        count = sum((samples[:, 1:] != PADDING).sum() for samples in microbatches)
        dist.all_reduce(count)
        total = torch.zeros((), device=device)
        for samples in microbatches:
            loss = self.model(samples) / count
            # Each backward reduces gradients and adds to shards. To communicate them once,
            # at the price of whole fp32 gradients: set_requires_gradient_sync.
            (loss * dist.get_world_size()).backward()  # FSDP divides by the ranks
            total += loss.detach()  # .item() would wait for the GPU here
        # The norm is that of all shards.
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=1.0).full_tensor()
        self.update(norm)
        return total, norm, count


def say(line):
    """Print a line, on rank 0 alone."""
    if dist.get_rank() == 0:
        print(line, flush=True)


def initial(name, shape, device):
    """The first value of a parameter, which follows from its name: alike on all ranks."""
    if name.endswith("bias"):
        return torch.zeros(shape, device=device)
    if len(shape) == 1:  # the weight of a norm
        return torch.ones(shape, device=device)
    generator = torch.Generator(device).manual_seed(zlib.crc32(name.encode()))
    return torch.randn(shape, device=device, generator=generator) * 0.02


def groups(model):
    """Weight decay shrinks matrices; norms, biases and embeddings keep their scale."""
    embeddings = {one.weight for one in model.modules() if isinstance(one, nn.Embedding)}
    decayed = [p for p in model.parameters() if p.dim() > 1 and p not in embeddings]
    others = [p for p in model.parameters() if p.dim() < 2 or p in embeddings]
    return [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--length", type=int, default=32, help="tokens of a sample")
    parser.add_argument("--batch", type=int, default=32, help="samples a step, all ranks")
    parser.add_argument("--microbatch", type=int, default=8, help="samples a backward")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--learning-rate", type=float, default=1e-2)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--checkpoints", type=Path, help="a folder that all nodes see")
    parser.add_argument("--save-every", type=int, default=500, help="steps")
    parser.add_argument("--keep", type=int, default=2, help="checkpoints")
    parser.add_argument("--evaluate", type=int, default=0, help="samples that no step trains on")
    parser.add_argument("--timeout", type=float, default=10, help="minutes to wait for a rank")
    return parser.parse_args()


def start_rank(timeout):
    """Join the process group; the device of this rank."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo", timeout=timeout)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)  # otherwise all ranks of a node use its first GPU
    dist.init_process_group("nccl", timeout=timeout, device_id=device)
    return device


def now(device):
    """The time at which the device has done what it was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def sharded(build, device, dtype):
    """The model that `build` makes, with a shard of each parameter on each rank."""
    with torch.device("meta"):  # shapes without memory: no GPU holds the whole model
        model = build()
    policy = MixedPrecisionPolicy()
    if dtype == "bf16":  # gather and compute in bf16; keep shards and sum in fp32
        policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:  # units, each gathered before it runs and then freed
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)  # the root: parameters outside of blocks
    model.to_empty(device=device)  # memory without values, of buffers too: fill all of it
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # one at a time is whole
            whole, placed = initial(name, parameter.shape, device), parameter.placements
            mesh = parameter.device_mesh  # each rank takes its shard; nothing is sent
            parameter.copy_(distribute_tensor(whole, mesh, placed, src_data_rank=None))
    return model


def measured(model, samples, device):
    """The sum of the loss over targets, and their number."""
    samples = samples.to(device)
    return model(samples), (samples[:, 1:] != PADDING).sum()


def train(training, data, args, device):
    """Train, log and save, until the last step or until a rank is told to stop."""
    num_tokens, began = 0, None  # since the last line, save, or first step, which is slow
    told, is_stopped = Stop(device), False
    while training.step < args.steps and not is_stopped:
        loss, norm, count = training.take_step(next(data), device)
        step, num_tokens = training.step, num_tokens + count
        is_stopped = told()
        is_logged = step % args.log_every == 0
        is_due = step % args.save_every == 0 or step == args.steps or is_stopped
        is_saved = args.checkpoints and is_due
        if is_logged:
            dist.all_reduce(loss)  # every rank takes part in this, and rank 0 prints
            line = f"step {step}: loss {loss.item():.4f}, norm {norm.item():.4f}"
            if began is not None:
                line += f", {num_tokens.item() / (now(device) - began):.0f} tokens/s"
            if device.type == "cuda":
                line += f", peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"
            say(line)
        if is_saved:
            start = now(device)
            training.save(args.checkpoints, args.keep)
            say(f"saved after step {step}, in {now(device) - start:.1f} s")
        if is_logged or is_saved or began is None:
            num_tokens, began = 0, now(device)
    if is_stopped:
        say(f"stopped after step {training.step}")


@record  # torchrun then names the rank that failed first, with its traceback
def main():
    args, num_ranks = arguments(), int(os.environ["WORLD_SIZE"])
    accumulation, rest = divmod(args.batch, args.microbatch * num_ranks)
    if rest or not accumulation:
        raise SystemExit(f"--batch: not a multiple of {args.microbatch * num_ranks}")
    device = start_rank(timedelta(minutes=args.timeout))
    sizes = (*SIZES[args.size], args.length, args.dropout)
    model = sharded(lambda: Transformer(*sizes), device, args.dtype)
    optimizer = torch.optim.AdamW(groups(model), lr=args.learning_rate)
    warmup = max(1, min(2000, args.steps // 10))
    scheduler = torch.optim.lr_scheduler.LambdaLR(  # warm-up, then half a cosine
        optimizer,
        lambda n: min(1, (n + 1) / warmup) * (1 + math.cos(math.pi * n / args.steps)) / 2,
    )
    training = Training(model, optimizer, scheduler)
    if args.checkpoints and training.resume(args.checkpoints):
        say(f"resumed after step {training.step}")
    samples = Sequences(args.length)
    if len(samples) < args.batch:
        raise SystemExit(f"--batch: more than the {len(samples)} samples")
    on_gpu = device.type == "cuda"
    loader = DataLoader(
        samples,
        batch_size=args.microbatch,
        sampler=ResumableSampler(samples, drop_last=True),  # a share for each rank
        num_workers=4 if on_gpu else 0,  # of each rank
        pin_memory=on_gpu,
        persistent_workers=on_gpu,
    )
    data = batches(loader, training.step, len(samples) // args.batch, accumulation)
    train(training, data, args, device)
    if args.evaluate:
        held_out = [samples[-1, index] for index in range(args.evaluate)]  # of no epoch
        loss = evaluate(model, held_out, args.microbatch, lambda one, of: measured(one, of, device))
        say(f"evaluated after step {training.step}: loss {loss:.4f}")
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()  # after an error, torchrun ends all ranks instead


if __name__ == "__main__":
    main()
