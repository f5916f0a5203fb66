"""Near ties of a router: rounding chooses the expert, also where a layer is recomputed.

torchrun --nproc-per-node 1 near_ties.py
"""

from functools import partial

import torch
import torch.distributed as dist
from torch.utils import checkpoint

NUM_TOKENS, NUM_TIES, WIDTH, NUM_EXPERTS = 256, 64, 8, 4
FORTH, BACK = range(WIDTH), range(WIDTH - 1, -1, -1)

dist.init_process_group("gloo")
torch.manual_seed(0)
tokens = torch.randn(NUM_TOKENS, WIDTH)
tokens[:NUM_TIES] += tokens[:NUM_TIES].flip(1)  # the same from both ends
router = torch.randn(WIDTH, NUM_EXPERTS)
router[:, 1] = router[:, 0].flip(0)  # these tokens' scores of two experts differ by rounding
experts = torch.randn(NUM_EXPERTS, WIDTH, WIDTH, requires_grad=True)
tokens.requires_grad_()


def layer(orders):
    """Each token through the expert with the highest score; scores add up in the next order."""
    terms, scores = tokens[..., None] * router, torch.zeros(NUM_TOKENS, NUM_EXPERTS)
    for feature in next(orders):
        scores = scores + terms[:, feature]
    shares, chosen = scores.sigmoid().topk(1)
    order, counts = chosen[:, 0].argsort(stable=True), chosen[:, 0].bincount(minlength=NUM_EXPERTS)
    parts = tokens[order].split(counts.tolist())
    outputs = torch.cat([part @ expert for part, expert in zip(parts, experts, strict=True)])
    return outputs[order.argsort()] * shares, chosen[:, 0]


def gradient(*orders, **how):
    """Backward computes the layer again, in the second order."""
    outputs, _ = checkpoint.checkpoint(layer, iter(orders), use_reentrant=False, **how)
    return torch.autograd.grad(outputs.square().sum(), tokens)[0]


(outputs, chosen), (others, chosen_too) = layer(iter([FORTH])), layer(iter([BACK]))
differs, apart = chosen != chosen_too, (outputs - others).norm(dim=1) / outputs.norm(dim=1)
report = {"num_otherwise": differs.sum().item(), "raised": 0}
report |= {"apart": apart[differs].min().item(), "apart_others": apart[~differs].max().item()}
try:
    gradient(FORTH, BACK)
except checkpoint.CheckpointError as error:
    report["raised"] = 1
    print("recomputed:", *str(error).splitlines()[:4], sep="\n  ")
saves = [torch.ops.aten.topk.default]  # the choice is kept, and the rest computed again
selects = partial(checkpoint.create_selective_checkpoint_contexts, saves)
true, kept = gradient(FORTH, FORTH), gradient(FORTH, BACK, context_fn=selects)
report["kept"] = ((kept - true).norm() / true.norm()).item()
print(f"{report['num_otherwise']} tokens choose otherwise, off by {report['apart']:.2g} or more")
print(f"recomputed with the choice kept: gradients off by {report['kept']:.2g}")
report = [report]
dist.destroy_process_group()
