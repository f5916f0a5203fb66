"""Positions, labels and masks of context ranks in two orders, each rule kept and then broken.

Each process computes what all ranks do together: with keys and values gathered, a token's result
depends on the position, the label and the mask that its rank gives it.

torchrun --nproc-per-node 2 edge_of_shard.py
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

TOKENS, WIDTH, VOCABULARY, PADDING, SIZE, FEW = 32, 16, 24, -100, 2, 8

dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
tokens = torch.randint(VOCABULARY, (TOKENS,))
weights = [torch.randn(VOCABULARY, WIDTH), torch.randn(3, WIDTH, WIDTH) / 4]


def head_tail(num_tokens):
    """The places of each rank's tokens."""
    blocks = torch.arange(num_tokens).chunk(2 * SIZE)
    return [torch.cat([blocks[i], blocks[-1 - i]]) for i in range(SIZE)]


def shifted(tokens):
    """The next token of each, and none for the last."""
    return torch.cat([tokens[1:], torch.tensor([PADDING])])


def rotated(features, positions):
    """Each pair of features, turned by an angle that grows with the position."""
    angles = positions[:, None] / 100 ** torch.linspace(0, 1, WIDTH // 2)
    pairs = torch.view_as_complex(features.unflatten(1, (-1, 2)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(1)


def gradient(places, broken="nothing"):
    """The gradient of the loss of the tokens in this order, and how many labels are wrong."""
    embedding, projections = leaves = [weight.clone().requires_grad_() for weight in weights]
    positions = seen = places
    labels = shifted(tokens)[places]
    if broken == "positions":  # they start again in each shard
        positions = torch.arange(TOKENS // SIZE).repeat(SIZE)
    if broken == "labels":  # shifted within each shard
        labels = torch.cat([shifted(shard) for shard in tokens[places].chunk(SIZE)])
    if broken == "mask":  # by the order in which tokens lie in memory
        seen = torch.arange(TOKENS)
    query, key, value = (inputs := embedding[tokens[places]]) @ projections
    scores = rotated(query, positions) @ rotated(key, positions).T / WIDTH**0.5
    scores = scores.masked_fill(seen > seen[:, None], -torch.inf)
    logits = (inputs + scores.softmax(1) @ value) @ embedding.T
    loss = cross_entropy(logits, labels, reduction="sum", ignore_index=PADDING) / (TOKENS - 1)
    grads = torch.cat([part.flatten() for part in torch.autograd.grad(loss, leaves)])
    return grads, (labels != shifted(tokens)[places]).sum().item()


(true, _), report = gradient(torch.arange(TOKENS)), {}
orders = {"contiguous": torch.arange(TOKENS), "head_tail": torch.cat(head_tail(TOKENS))}
for order, places in orders.items():
    for broken in ["nothing", "positions", "labels", "mask"]:
        grads, num_wrong = gradient(places, broken)
        apart = ((grads - true).norm() / true.norm()).item()
        report |= {f"{order}_{broken}": apart, f"{order}_{broken}_num_wrong": num_wrong}
        if dist.get_rank() == 0:
            print(f"{order:>10}, {broken:>9} broken: {apart:.2g}, {num_wrong} labels wrong")
few = torch.arange(FEW)  # a sequence whose tokens are their positions, for a picture
pictures = [
    {"places": shard, "is_back": shard >= FEW // 2, "labels": shifted(few)[shard],
     "within": shifted(shard), "restarted": few[: len(shard)],
     "num_scores": (few[:, None] >= few).chunk(SIZE)[i].sum()}  # of a contiguous shard
    for i, shard in enumerate(head_tail(FEW))
]  # fmt: skip
report = [{name: of.int().tolist() for name, of in one.items()} | report for one in pictures]
dist.destroy_process_group()
