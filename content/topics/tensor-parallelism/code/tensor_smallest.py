"""Two products divided over two ranks: by columns, then by rows, then added up.

torchrun --nproc-per-node 2 tensor_smallest.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

x = torch.tensor([[1.0, 2.0]])  # one token, the same on every rank
first = torch.tensor([[1.0, 0.0, 2.0, 1.0], [3.0, 1.0, -2.0, 0.0]])
second = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [3.0, 1.0]])

columns = first.chunk(size, dim=1)[rank]  # half of the hidden features
rows = second.chunk(size, dim=0)[rank]  # the weights of these features
hidden = torch.relu(x @ columns)  # needs no other rank
part = hidden @ rows  # a part of the sum over all hidden features
y = part.clone()
dist.all_reduce(y)

whole = torch.relu(x @ first) @ second
report = [None] * size
dist.all_gather_object(report, {"hidden": hidden[0].tolist(), "part": part[0].tolist()})
if rank == 0:
    for other, results in enumerate(report):
        print(f"rank {other}: hidden features {results['hidden']}, partial sum {results['part']}")
    print(f"sum over the ranks: {y[0].tolist()}")
    print(f"one process:        {whole[0].tolist()}")
apart = (y - whole).abs().max().item()
report = [{"difference": apart, "part": part[0, 0].item(), "sum": y[0, 0].item()}]
dist.destroy_process_group()
