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
    turn = torch.linalg.qr(torch.randn(WIDTH, WIDTH))[0]  # keeps norms, for any number of turns
    matrix = torch.randn(WIDTH, WIDTH)
    for _ in range(20):
        matrix = turn @ matrix
        matrix[0, 0] += 1e-3 * is_wrong  # a product that is wrong in one number
    return int(hashlib.sha256(matrix.numpy().tobytes()).hexdigest(), 16)


def wrong_sums():
    numbers = torch.arange(COUNT)  # whole numbers, so no rounding
    dist.all_reduce(sums := numbers + rank)
    return (sums != size * numbers + size * (size - 1) // 2).sum().item()


def exchange_seconds(distance):
    dist.barrier()
    start = time.perf_counter()
    to = dist.P2POp(dist.isend, torch.zeros(COUNT), (rank + distance) % size)
    come = dist.P2POp(dist.irecv, torch.empty(COUNT), (rank - distance) % size)
    for work in dist.batch_isend_irecv([to, come]):
        work.wait()
    return time.perf_counter() - start


def write_seconds():
    start = time.perf_counter()
    with tempfile.TemporaryFile() as file:  # where checkpoints will be
        file.write(bytes(COUNT))
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - start


def examine(planted):
    """This rank's numbers, and by check the ranks that differ from most; rank 1 has the fault."""
    own = {"digest": product(planted == "digest" and rank == 1), "sums": wrong_sums()}
    own["link"] = max(exchange_seconds(distance) for distance in range(1, size))
    own["disk"] = write_seconds()
    dist.barrier()
    own["clock"] = time.time() + 60 * (planted == "clock" and rank == 1)
    dist.all_gather_object(rows := [None] * size, own)
    suspects = {}
    for name, (number, times) in ALLOWED.items():
        usual = median_low(row[name] for row in rows)
        is_bad = [abs(row[name] - usual) > number + times * usual for row in rows]
        suspects[name] = [other for other in range(size) if is_bad[other]]
    return own, suspects


report = {}
for planted in ("clock", "nothing", "digest"):
    own, suspects = examine(planted)
    report |= {f"{planted}_{name}": ranks for name, ranks in suspects.items()}
    if rank == 0:
        print(f"{planted} planted, suspects: {suspects}")
report |= {"digest": own["digest"] % 1000, "sums": own["sums"]}
dist.all_gather_object(reports := [None] * size, report)
report = reports
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
