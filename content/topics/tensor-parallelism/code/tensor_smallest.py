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
results = {"x": x, "columns": columns, "hidden": hidden, "rows": rows, "part": part, "sum": y}
lines = {f"{name}_{n}": line.tolist() for name, of in results.items() for n, line in enumerate(of)}
report = [None] * size
dist.all_gather_object(report, {**lines, "difference": (y - whole).abs().max().item()})
if rank == 0:
    for other, one in enumerate(report):
        print(f"rank {other}: hidden features {one['hidden_0']}, partial sum {one['part_0']}")
    print(f"sum over the ranks: {y[0].tolist()}")
    print(f"one process:        {whole[0].tolist()}")
dist.destroy_process_group()
