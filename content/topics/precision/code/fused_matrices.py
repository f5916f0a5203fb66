"""Muon's update for matrices that a model stores as one: queries, keys and values, and experts.

torchrun --nproc-per-node 1 fused_matrices.py
"""

import torch

WIDTH, EXPERTS, STEPS = 64, 4, 5


def orthogonal(matrix):
    """Newton and Schulz, for a matrix or for each of a stack: singular values go towards one."""
    flat = matrix / matrix.norm(dim=(-2, -1), keepdim=True)
    for _ in range(STEPS):
        gram = flat @ flat.mT
        flat = 3.4445 * flat + (-4.7750 * gram + 2.0315 * gram @ gram) @ flat
    return flat


def error(ours, right):
    return ((ours - right).norm() / right.norm()).item()


def refused(shape):
    try:
        torch.optim.Muon([torch.nn.Parameter(torch.ones(shape))])
    except ValueError as refusal:
        return int("only supports 2D parameters" in str(refusal))
    return 0


torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
parts = torch.randn(3, WIDTH, WIDTH) * torch.tensor([1, 0.1, 3])[:, None, None]
fused = parts.flatten(0, 1)  # queries, keys and values: one matrix of 3 WIDTH rows
right = torch.cat([orthogonal(one) for one in parts])
experts = torch.randn(EXPERTS, WIDTH, 2 * WIDTH)
each = torch.stack([orthogonal(one) for one in experts])
as_one = orthogonal(fused.T).T
facts = {
    "fused": error(as_one, right),
    "split": error(orthogonal(fused.unflatten(0, (3, -1))).flatten(0, 1), right),
    "experts_as_one": error(orthogonal(experts.flatten(0, 1).T).T.view_as(each), each),
    "experts_in_stack": error(orthogonal(experts), each),
    "stack_refused": refused((EXPERTS, WIDTH, WIDTH)),
    "vector_refused": refused((WIDTH,)),
}
for name, own in zip(("queries", "keys", "values"), as_one.chunk(3), strict=True):
    facts[f"fused_{name}"] = (own.norm() / right.chunk(3)[0].norm()).item()
print(*(f"{name}: {round(fact, 6)}" for name, fact in facts.items()), sep="\n")
report = [facts]
