"""Sums of matrices that do not match: torchrun --nproc-per-node 2 without_a_word.py"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
numbers = torch.arange(6.0)
matrix = numbers.view(2, 3) if dist.get_rank() == 0 else numbers.view(3, 2)
shape = list(matrix.shape)
dist.all_reduce(matrix)
dist.all_gather_object(gathered := [0, 0], f"{shape} became {matrix.flatten().tolist()}")
dist.get_rank() == 0 and print(*gathered, sep="\n")
dist.barrier()
