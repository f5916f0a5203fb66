"""How often a token leaves its node: by expert, by node, and with a limit of nodes.

torchrun --nproc-per-node 1 nodes_of_tokens.py
"""

import math

import torch
import torch.distributed as dist

NUM_TOKENS, NUM_EXPERTS, NUM_CHOSEN, NUM_NODES, LIMIT = 16384, 256, 8, 8, 4

dist.init_process_group("gloo")
torch.manual_seed(0)
scores = torch.rand(NUM_TOKENS, NUM_EXPERTS)  # a router that has learnt nothing
by_node = scores.view(NUM_TOKENS, NUM_NODES, -1)


def nodes_of(scores):
    return scores.topk(NUM_CHOSEN).indices // (NUM_EXPERTS // NUM_NODES)


def num_other_nodes(nodes):
    """The mean number of different nodes that a token leaves its own for; all are of node 0."""
    visited = torch.nn.functional.one_hot(nodes, NUM_NODES).amax(1)
    return visited[:, 1:].sum(1).double().mean().item()


free = nodes_of(scores)
# Each node's score is the sum of its best experts; a token goes to the best nodes only.
best = by_node.topk(NUM_CHOSEN // LIMIT).values.sum(-1).topk(LIMIT).indices
is_best = torch.zeros(NUM_TOKENS, NUM_NODES, dtype=torch.bool).scatter(1, best, True)
limited = nodes_of(by_node.where(is_best[..., None], 0).flatten(1))

# Choices of which none is on a given node.
elsewhere = math.comb(NUM_EXPERTS - NUM_EXPERTS // NUM_NODES, NUM_CHOSEN)
report = {
    "copies_by_expert": (free != 0).sum(1).double().mean().item(),
    "copies_free": num_other_nodes(free),
    "copies_limited": num_other_nodes(limited),
    "copies_predicted": (NUM_NODES - 1) * (1 - elsewhere / math.comb(NUM_EXPERTS, NUM_CHOSEN)),
}
print(f"one copy for each expert: {report['copies_by_expert']:.2f} copies to other nodes")
print(f"one copy for each node:   {report['copies_free']:.2f}")
print(f"at most {LIMIT} nodes:          {report['copies_limited']:.2f}")
report = [report]
dist.destroy_process_group()
