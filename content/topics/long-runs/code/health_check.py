"""A health check before a job: every rank computes, sends, writes, and reads its clock.

torchrun --nproc-per-node 4 health_check.py
"""

import hashlib
import os
import tempfile
import time
from functools import partial
from statistics import median_low

import torch
import torch.distributed as dist

WIDTH, COUNT = 128, 1 << 18  # small; for devices, larger
# By how much a rank may differ from most ranks: by a number, and a multiple of theirs.
ALLOWED = {"digest": (0, 0), "sums": (0, 0), "link": (0.05, 2), "disk": (0.1, 2), "clock": (1, 0)}
PLANTED = ["nothing", "clock", "link", "disk", "digest"]

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


def exchange(distance):
    to = dist.P2POp(dist.isend, torch.zeros(COUNT), (rank + distance) % size)
    come = dist.P2POp(dist.irecv, torch.empty(COUNT), (rank - distance) % size)
    for work in dist.batch_isend_irecv([to, come]):
        work.wait()  # on a device, synchronize it as well


def write():
    with tempfile.TemporaryFile() as file:  # where checkpoints will be
        file.write(bytes(COUNT))
        file.flush()
        os.fsync(file.fileno())


def least_seconds(act, is_slow):
    """The least of several times, so that opening a connection does not count."""
    seconds = []
    for _ in range(3):
        dist.barrier()
        start = time.perf_counter()
        time.sleep(0.3 * is_slow)  # the planted fault
        act()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def examine(planted):
    """This rank's numbers, and by check the ranks that differ from most; rank 1 has the fault."""
    has = {name: rank == 1 and planted == name for name in PLANTED}
    own = {"digest": product(has["digest"]), "sums": wrong_sums()}
    links = [least_seconds(partial(exchange, far), has["link"]) for far in range(1, size)]
    own |= {"link": min(links), "disk": least_seconds(write, has["disk"])}
    dist.barrier()
    own["clock"] = time.time() + 60 * has["clock"]
    dist.all_gather_object(rows := [None] * size, own)
    suspects = {}
    for name, (number, times) in ALLOWED.items():
        usual = median_low(row[name] for row in rows)
        is_bad = [abs(row[name] - usual) > number + times * usual for row in rows]
        suspects[name] = [other for other in range(size) if is_bad[other]]
    return own, suspects


report = {"planted": len(PLANTED), "named": 0}
for planted in PLANTED:
    own, suspects = examine(planted)
    report["named"] += suspects == {name: [1] * (name == planted) for name in ALLOWED}
    if rank == 0:
        print(f"{planted} planted, suspects: {suspects}")
report |= {"digest": own["digest"] % 1000, "sums": own["sums"], "suspect": suspects["digest"][0]}
dist.all_gather_object(reports := [None] * size, report)
report = reports
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
