"""FSDP gathers a layer whole before it computes: torchrun --nproc-per-node 2 gathered_whole.py"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
for name, count, width in (("one layer", 1, 4000), ("eight equal layers", 8, 1414)):
    layers = [torch.nn.Linear(width, width, bias=False) for _ in range(count)]
    model = torch.nn.Sequential(*layers)
    whole, gathered = sum(p.nbytes for p in model.parameters()), []
    for layer in model:
        fully_shard(layer)
        layer.register_forward_hook(lambda m, *_, seen=gathered: seen.append(m.weight.nbytes))
    model(torch.ones(2, width))
    if dist.get_rank() == 0:
        print(f"{name}: {max(gathered) / whole:.1%} of the model whole at a time")
dist.barrier()
