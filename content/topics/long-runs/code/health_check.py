"""A health check before a job: every rank computes, sends, writes, and reads its clock.

torchrun --nproc-per-node 4 health_check.py
"""

import hashlib
import os
import tempfile
import time
from statistics import median_low

import torch
import torch.distributed as dist

WIDTH, COUNT = 128, 1 << 18  # small; for devices, larger
# By how much a rank may differ from most ranks: by a number, or by a multiple of theirs.
ALLOWED = {"digest": (0, 0), "sums": (0, 0), "link": (0, 20), "disk": (0, 20), "clock": (5, 0)}

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def product(is_wrong):
    torch.manual_seed(0)  # the same factors everywhere
    matrix = torch.randn(WIDTH, WIDTH)
    for _ in range(20):
        matrix = matrix @ matrix / matrix.norm()
    matrix[0, 0] += 1e-6 * is_wrong
    return int(hashlib.sha256(matrix.numpy().tobytes()).hexdigest(), 16)


def wrong_sums():
    numbers = torch.arange(COUNT)  # whole numbers, so no rounding
    dist.all_reduce(sums := numbers + rank)
    return (sums != size * numbers + size * (size - 1) // 2).sum().item()


def exchange_seconds(distance):
    dist.barrier()
    start = time.perf_counter()
    to = dist.isend(torch.zeros(COUNT), (rank + distance) % size)
    dist.recv(torch.empty(COUNT), (rank - distance) % size)
    to.wait()
    return time.perf_counter() - start


def write_seconds():
    start = time.perf_counter()
    with tempfile.TemporaryFile() as file:  # where checkpoints will be
        file.write(bytes(COUNT))
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - start


def suspects(planted):
    """This rank's row, and by check the ranks that differ from most; rank 1 has the fault."""
    row = {"digest": product(planted == "digest" and rank == 1), "sums": wrong_sums()}
    row["link"] = max(exchange_seconds(distance) for distance in range(1, size))
    row["disk"] = write_seconds()
    dist.barrier()
    row["clock"] = time.time() + 60 * (planted == "clock" and rank == 1)
    rows, found = [None] * size, {}
    dist.all_gather_object(rows, row)
    for name, (number, times) in ALLOWED.items():
        usual = median_low(of[name] for of in rows)
        apart = [abs(of[name] - usual) for of in rows]
        found[name] = [r for r in range(size) if apart[r] > number + times * usual]
    return row, found


report = {}
for planted in ("clock", "nothing", "digest"):
    row, found = suspects(planted)
    report |= {f"{planted}_{name}": ranks for name, ranks in found.items()}
    if rank == 0:
        print(f"{planted} planted, suspects: {found}")
reports = [None] * size
dist.all_gather_object(reports, report | {"digest": row["digest"] % 1000, "sums": row["sums"]})
report = reports
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
