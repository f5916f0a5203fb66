r"""A complete DDP program: every rank has the whole model and a share of each batch.

On two CPU processes, and on a node with eight GPUs:

    torchrun --standalone --nproc-per-node 2 complete_ddp.py
    torchrun --standalone --nproc-per-node 8 complete_ddp.py --size small --length 1024 \
        --batch 256 --steps 1000 --learning-rate 3e-4 --checkpoints checkpoints
"""

import argparse
import math
import os
import shutil
import time
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

VOCABULARY = 64
SIZES = {"tiny": (2, 64), "small": (12, 768), "large": (24, 2048)}  # blocks, width


class Sequences(Dataset):
    """Sequences that count up by a constant. Replace them by your own samples."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return 100_000

    def __getitem__(self, index):  # depends on the index alone, not on the rank
        generator = torch.Generator().manual_seed(index)
        start, stride = torch.randint(VOCABULARY, (2,), generator=generator)
        return (start + stride % 4 * torch.arange(self.length + 1)) % VOCABULARY


class ResumableSampler(DistributedSampler):
    """Skips what this rank had seen of an epoch when the training stopped."""

    num_seen = 0

    def __iter__(self):
        return islice(super().__iter__(), self.num_seen, None)


class Transformer(nn.Module):
    """The mean loss of the next token. Replace it by your own model."""

    def __init__(self, num_blocks, width, length, dropout):
        super().__init__()
        sizes = {"d_model": width, "nhead": width // 64, "dim_feedforward": 4 * width}
        how = {"dropout": dropout, "batch_first": True, "norm_first": True}
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(**sizes, **how) for _ in range(num_blocks)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = self.token(inputs) + self.position.weight[: inputs.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], x.device)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return cross_entropy(self.head(x).float().mT, targets)


@dataclass
class Training(Stateful):
    """What a checkpoint holds. DCP calls the first two methods to save and to load."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    step: int = 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        own = {"scheduler": self.scheduler.state_dict(), "step": self.step}
        return {"model": model, "optimizer": optimizer, **own}

    def load_state_dict(self, state):
        loaded = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
        set_state_dict(self.model, self.optimizer, **loaded)
        self.scheduler.load_state_dict(state["scheduler"])
        self.step = state["step"]

    def save(self, folder):
        """Every rank writes its part; rank 0 then keeps the last two checkpoints."""
        dcp.save({"training": self}, checkpoint_id=folder / f"step-{self.step:08d}")
        if dist.get_rank() == 0:
            for old in sorted(folder.glob("step-*"))[:-2]:
                shutil.rmtree(old)

    def resume(self, folder):
        """Load the last complete checkpoint, if there is one."""
        complete = sorted(folder.glob("step-*/.metadata"))  # the file that is written last
        last = [complete[-1].parent if complete else None]
        dist.broadcast_object_list(last)  # all ranks load what rank 0 has found
        if last[0]:
            dcp.load({"training": self}, checkpoint_id=last[0])
            if dist.get_rank() == 0:
                print(f"resumed after step {self.step}", flush=True)

    def take_step(self, microbatches, device, dtype):
        """Update the model; the mean loss of this rank's samples and the gradient's norm."""
        self.step += 1
        # Dropout follows from step and rank, so a resumed run repeats it.
        torch.manual_seed(self.step * dist.get_world_size() + dist.get_rank())
        total = torch.zeros((), device=device)
        for index, samples in enumerate(microbatches, start=1):
            tokens = samples.to(device, non_blocking=True)
            is_last = index == len(microbatches)
            # Each backward adds to the gradients; the last one averages them over ranks.
            with nullcontext() if is_last else self.model.no_sync():
                with torch.autocast(device.type, torch.bfloat16, enabled=dtype == "bf16"):
                    loss = self.model(tokens) / len(microbatches)
                loss.backward()
            total += loss.detach()  # .item() would wait for the GPU here
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return total, norm


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
    parser.add_argument("--save-every", type=int, default=20)
    return parser.parse_args()


def start_rank():
    """Join the process group; the device of this rank."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)  # otherwise all ranks of a node use its first GPU
    dist.init_process_group("nccl", device_id=device)
    return device


def batches(loader, step, steps_per_epoch, accumulation):
    """The microbatches of each step, from the next one on, epoch after epoch."""
    while True:
        epoch, done = divmod(step, steps_per_epoch)
        loader.sampler.set_epoch(epoch)  # otherwise every epoch has the same order
        loader.sampler.num_seen = done * accumulation * loader.batch_size
        drawn = iter(loader)
        for _ in range(done, steps_per_epoch):
            yield list(islice(drawn, accumulation))
            step += 1


@record  # torchrun then names the rank that failed first, with its traceback
def main():
    args, num_ranks = arguments(), int(os.environ["WORLD_SIZE"])
    accumulation, rest = divmod(args.batch, args.microbatch * num_ranks)
    if rest or not accumulation:
        raise SystemExit(f"--batch: not a multiple of {args.microbatch * num_ranks}")
    device = start_rank()
    torch.manual_seed(0)
    model = Transformer(*SIZES[args.size], args.length, args.dropout).to(device)
    model = DistributedDataParallel(model)  # every rank gets the weights of rank 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(  # warm-up, then half a cosine
        optimizer,
        lambda n: min(1, (n + 1) / 10) * (1 + math.cos(math.pi * n / args.steps)) / 2,
    )
    training = Training(model, optimizer, scheduler)
    if args.checkpoints:
        training.resume(args.checkpoints)
    samples = Sequences(args.length)
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
    logged, began = training.step, time.perf_counter()
    while training.step < args.steps:
        loss, norm = training.take_step(next(data), device, args.dtype)
        step = training.step
        if step % args.log_every == 0:
            dist.all_reduce(loss)  # every rank takes part in this, and rank 0 prints
            line = f"step {step}: loss {loss.item() / num_ranks:.4f}, norm {norm:.4f}"
            if on_gpu:
                rate = (step - logged) * args.batch * args.length
                rate /= time.perf_counter() - began
                peak = torch.cuda.max_memory_allocated() / 2**30
                line += f", {rate:.0f} tokens/s, peak {peak:.1f} GiB"
                logged, began = step, time.perf_counter()
            if dist.get_rank() == 0:
                print(line, flush=True)
        if args.checkpoints and (step % args.save_every == 0 or step == args.steps):
            training.save(args.checkpoints)
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()  # after an error, torchrun ends all ranks instead


if __name__ == "__main__":
    main()
