"""A script for GPUs: DDP, nccl, autocast and a gradient scaler; it names `cuda` everywhere.

Words: `wrong` takes the mean of each rank's tokens; `graph` asks for a CUDA graph; `asserts` needs
`torch.cuda.is_available()`.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WAYS = sys.argv[1:]


class Classifier(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.embed = nn.Embedding(64, 32, device=device)
        self.hidden = nn.Linear(32, 64).to(device)
        self.head = nn.Linear(64, 16, device=device)

    def forward(self, tokens):
        return self.head(F.gelu(self.hidden(self.embed(tokens))))


class Prefetcher:
    """Copies the next batch to the GPU on a stream of its own."""

    def __init__(self, loader, device):
        self.loader, self.device = loader, device
        self.stream = torch.cuda.Stream()

    def __iter__(self):
        following = None
        for tokens, labels in self.loader:
            with torch.cuda.stream(self.stream):
                batch = tokens.cuda(non_blocking=True), labels.to(self.device, non_blocking=True)
            if following:
                yield following
            torch.cuda.current_stream().wait_stream(self.stream)
            following = batch
            for one in following:
                one.record_stream(torch.cuda.current_stream())
        yield following


def main():
    if "asserts" in WAYS:
        assert torch.cuda.is_available(), "this script needs CUDA"
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    generator = torch.Generator(device="cuda").manual_seed(1)
    print(f"rank {dist.get_rank()} on {torch.cuda.get_device_name(local_rank)}")

    model = DDP(Classifier(device), device_ids=[local_rank], output_device=local_rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scaler = torch.cuda.amp.GradScaler(init_scale=1024)
    tokens = torch.randint(64, (192, 8), generator=torch.Generator().manual_seed(2))
    labels = tokens % 16
    labels[:, 5:][torch.rand(192, 3, device="cuda", generator=generator).cpu() < 0.5] = -100
    data = TensorDataset(tokens, labels)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 8, sampler=sampler, pin_memory=True)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for tokens, labels in Prefetcher(loader, device):
        assert tokens.device == model.module.embed.weight.device
        with torch.cuda.nvtx.range("step"), torch.autocast("cuda", dtype=torch.float16):
            logits = model(tokens)
            total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
            count = (labels != -100).sum()
            if "wrong" not in WAYS:
                dist.all_reduce(count, op=dist.ReduceOp.SUM)
                count = count / dist.get_world_size()
            loss = total / count
        optimizer.zero_grad(set_to_none=True)
        if "graph" in WAYS:
            graph = torch.cuda.CUDAGraph()
            graph.replay()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    end.record()
    torch.cuda.synchronize()
    if dist.get_rank() == 0:
        memory = torch.cuda.max_memory_allocated() / 2**20
        print(f"{start.elapsed_time(end):.0f} ms, {memory:.0f} MiB, loss {loss.item():.3f}")
    dist.barrier(device_ids=[local_rank])
    dist.destroy_process_group()


main()
