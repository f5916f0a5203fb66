"""Logits and loss, whole, in chunks and divided by vocabulary: the most bytes, and the error.

torchrun --nproc-per-node 2 peak_of_logits.py
"""

from itertools import accumulate

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy, linear_cross_entropy
from torch.profiler import profile

TOKENS, WIDTH, VOCABULARY, CHUNK = 1024, 64, 8192, 128
BF16, FP32 = torch.bfloat16, torch.float32
CHUNKS = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=CHUNK, acc_dtype=FP32)


def most_bytes(events):
    """The most bytes of CPU tensors that the allocator had given out at once."""
    memory = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    return max(accumulate(nbytes for _, nbytes in memory))


def whole(hidden, head, product=BF16, loss=FP32):
    logits = hidden.to(product) @ head.to(product).T
    return cross_entropy(logits.to(loss), labels, reduction="sum")


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
inputs = torch.randn(TOKENS, WIDTH).to(BF16), torch.randn(VOCABULARY, WIDTH).to(BF16)
labels = torch.randint(VOCABULARY, (TOKENS,))
exact = inputs[0].double().requires_grad_()
right = whole(exact, inputs[1], torch.float64, torch.float64)
right.backward()
WAYS = {  # dtype of the product, dtype of the loss
    "whole": whole,
    "all_bf16": lambda *both: whole(*both, loss=BF16),
    "all_fp32": lambda *both: whole(*both, product=FP32),
    "chunks": lambda *both: linear_cross_entropy(*both, labels, reduction="sum", options=CHUNKS),
    "divided": whole,
}
facts = {"logits_bytes": FP32.itemsize * TOKENS * VOCABULARY}
for way, loss_of in WAYS.items():
    hidden, head = (one.clone().requires_grad_() for one in inputs)
    if way == "divided":  # each rank has the logits of some words
        head = distribute_tensor(inputs[1], mesh, [Shard(0)]).requires_grad_()
        hidden = distribute_tensor(inputs[0], mesh).requires_grad_()
    with profile(profile_memory=True) as recorded, loss_parallel():
        loss = loss_of(hidden, head)
        loss.backward()
    found = hidden.grad.full_tensor() if way == "divided" else hidden.grad
    facts[f"{way}_most_bytes"] = most_bytes(recorded.profiler.kineto_results.events())
    facts[f"{way}_loss_error"] = abs(loss.item() / right.item() - 1)
    facts[f"{way}_error"] = ((found - exact.grad).norm() / exact.grad.norm()).item()
report = [facts]
if dist.get_rank() == 0:
    print(*(f"{name}: {round(fact, 6)}" for name, fact in facts.items()), sep="\n")
dist.destroy_process_group()
