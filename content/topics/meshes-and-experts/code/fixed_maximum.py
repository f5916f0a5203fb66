"""Dispatch to experts in two ways: counts first, or as many places for each expert on every rank.

torchrun --nproc-per-node 4 fixed_maximum.py
"""

import time

import torch
import torch.distributed as dist

NUM_TOKENS, WIDTH, NUM_EXPERTS, NUM_CHOSEN = 512, 16, 8, 2
CAPACITIES = {"capacity_100": 1.0, "capacity_150": 1.5, "capacity_400": NUM_EXPERTS / NUM_CHOSEN}
# Rows are what tokens become: one for each expert that they choose.
NUM_ROWS = NUM_TOKENS * NUM_CHOSEN

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
popular = torch.linspace(1, -1, NUM_EXPERTS)  # some experts are chosen more often
scores = torch.randn(NUM_TOKENS, NUM_EXPERTS) + popular
chosen = scores.topk(NUM_CHOSEN).indices.flatten()
rows = torch.randn(NUM_TOKENS, WIDTH).repeat_interleave(NUM_CHOSEN, 0)
weights = torch.randn(NUM_EXPERTS, WIDTH, WIDTH, generator=torch.Generator().manual_seed(9))
own = weights.chunk(size)[rank]


def counts_first():
    """Every row is sent; the host waits for the counts, from which the sizes of buffers follow."""
    order, counts = chosen.argsort(stable=True), chosen.bincount(minlength=NUM_EXPERTS)
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts)
    sent, received = (of.view(size, -1).sum(1).tolist() for of in (counts, arriving))
    inputs = rows.new_empty(sum(received), WIDTH)
    dist.all_to_all_single(inputs, rows[order], received, sent)
    experts = torch.arange(len(own)).repeat(size).repeat_interleave(arriving)
    outputs = torch.empty_like(inputs)
    for expert, weight in enumerate(own):
        outputs[experts == expert] = inputs[experts == expert] @ weight
    returned, result = torch.empty_like(rows), torch.empty_like(rows)
    dist.all_to_all_single(returned, outputs, sent, received)
    result[order] = returned
    return result, len(inputs), 0


def fixed_places(capacity):
    """Each expert has as many places for the rows of a rank; what exceeds them is dropped."""
    num_places = int(capacity * NUM_ROWS / NUM_EXPERTS)
    earlier = torch.nn.functional.one_hot(chosen, NUM_EXPERTS).cumsum(0)
    place = earlier.gather(1, chosen[:, None])[:, 0] - 1  # among the rank's rows for this expert
    fits = place < num_places
    sent = rows.new_zeros(NUM_EXPERTS, num_places, WIDTH)
    sent[chosen[fits], place[fits]] = rows[fits]
    inputs = torch.empty_like(sent)
    dist.all_to_all_single(inputs, sent)  # equal parts, so nobody waits for counts
    outputs = inputs.view(size, len(own), num_places, WIDTH) @ own  # zeros are multiplied as well
    returned = torch.empty_like(sent)
    dist.all_to_all_single(returned, outputs.contiguous().view_as(sent))
    result = torch.zeros_like(rows)
    result[fits] = returned[chosen[fits], place[fits]]
    return result, size * len(own) * num_places, (~fits).sum().item()


true, num_inputs, _ = counts_first()
report = {"counts_first_num_rows": num_inputs}
for name, capacity in CAPACITIES.items():
    result, num_inputs, num_dropped = fixed_places(capacity)
    error = ((result - true).norm() / true.norm()).item()
    report |= {f"{name}_num_rows": num_inputs, f"{name}_error": round(error, 6)}
    report[f"{name}_dropped"] = num_dropped / NUM_ROWS
reports = [None] * size
dist.all_gather_object(reports, report)
if rank == 0:
    ranks_rows = [of["counts_first_num_rows"] for of in reports]
    print(f"counts first: the ranks' experts compute {ranks_rows} rows")
    for name, capacity in CAPACITIES.items():
        dropped = sum(of[f"{name}_dropped"] for of in reports) / size
        print(
            f"{capacity} × even share: {reports[0][f'{name}_num_rows']} each, {dropped:.1%} dropped"
        )
report = reports
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
