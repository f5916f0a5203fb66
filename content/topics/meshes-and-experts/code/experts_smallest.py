"""Two ranks with an expert each: tokens travel to their experts, and the outputs back.

torchrun --nproc-per-node 2 experts_smallest.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

tokens = [torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([5.0, 6.0, 7.0, 8.0])][rank]
chosen = [torch.tensor([1, 0, 1, 1]), torch.tensor([0, 1, 1, 0])][rank]  # by a router

order = chosen.argsort(stable=True)  # tokens for expert 0 first, then those for expert 1
counts = chosen.bincount(minlength=size)
arriving = torch.empty_like(counts)
dist.all_to_all_single(arriving, counts)  # how many tokens come from each rank
received = tokens.new_empty(arriving.sum())
dist.all_to_all_single(received, tokens[order], arriving.tolist(), counts.tolist())

outputs = received * [10, 100][rank]  # the expert of this rank

returned = torch.empty_like(tokens)
dist.all_to_all_single(returned, outputs, counts.tolist(), arriving.tolist())
result = torch.empty_like(returned)
result[order] = returned  # in the order of the tokens again

results = {
    "tokens": tokens, "chosen": chosen, "counts": counts, "sorted": tokens[order],
    "received": received, "outputs": outputs, "returned": returned, "result": result,
}  # fmt: skip
report = [None] * size
numbers = {name: [int(number) for number in of] for name, of in results.items()}
dist.all_gather_object(
    report, numbers | {"num_computed": len(received), "first": numbers["result"][0]}
)
if rank == 0:
    for other, one in enumerate(report):
        print(f"rank {other}: its expert computes with {one['received']}")
        print(f"rank {other}: its tokens become {one['result']}")
dist.destroy_process_group()
