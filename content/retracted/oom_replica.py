"""One limit, alone and under DDP: torchrun --nproc-per-node 2 oom_replica.py"""

import resource
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")
SIZE, say = 4000, torch.distributed.get_rank() == 0
DistributedDataParallel(torch.nn.Linear(8, 8))(torch.ones(1, 8)).sum().backward()  # warm up
status = Path("/proc/self/status").read_text()
used = 1024 * int(status.split("VmData:")[1].split()[0])
limit = used + 3 * 4 * SIZE * SIZE // 2  # one and a half times the model
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
for name, wrapped in (("alone", lambda layer: layer), ("under DDP", DistributedDataParallel)):
    try:
        wrapped(torch.nn.Linear(SIZE, SIZE))(torch.ones(8, SIZE)).sum().backward()
        end = "trained"
    except RuntimeError as error:
        end = str(error).split("DefaultCPUAllocator: ")[-1].split(". Error")[0]
    say and print(f"{name}: {end}")
torch.distributed.barrier()
