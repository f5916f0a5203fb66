"""A router trained without balance, with a loss that balances, and with a bias that does.

torchrun --nproc-per-node 1 balance_ways.py
"""

import torch
import torch.distributed as dist
from torch import nn

NUM_TOKENS, WIDTH, NUM_EXPERTS, NUM_CHOSEN, STEPS = 512, 16, 8, 2, 300
KINDS = torch.tensor([0.4, 0.2, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05])  # of tokens, and how frequent
LOSS_WEIGHT, BIAS_STEP = 0.05, 0.01

dist.init_process_group("gloo")


def batch(step):
    """Tokens near the centre of their kind, and what is to be made of each kind."""
    source = torch.Generator().manual_seed(1000 + step)
    centres = torch.randn(len(KINDS), WIDTH, generator=torch.Generator().manual_seed(1))
    maps = torch.randn(len(KINDS), WIDTH, WIDTH, generator=torch.Generator().manual_seed(2)) / 4
    kinds = torch.multinomial(KINDS, NUM_TOKENS, replacement=True, generator=source)
    tokens = centres[kinds] + 0.3 * torch.randn(NUM_TOKENS, WIDTH, generator=source)
    return tokens, torch.einsum("tw,twv->tv", tokens, maps[kinds])


def train(way):
    """The mean loss of the last steps, and the rows of the busiest expert per even share."""
    torch.manual_seed(0)
    router = nn.Linear(WIDTH, NUM_EXPERTS, bias=False)
    experts = nn.Parameter(torch.randn(NUM_EXPERTS, WIDTH, WIDTH) / 4)
    optimizer = torch.optim.Adam([*router.parameters(), experts], lr=0.005)
    bias, losses, loads = torch.zeros(NUM_EXPERTS), [], []
    for step in range(STEPS):
        tokens, targets = batch(step)
        scores = router(tokens).softmax(-1)
        chosen = (scores + bias).topk(NUM_CHOSEN).indices  # the bias chooses …
        shares = torch.zeros_like(scores).scatter(1, chosen, scores.gather(1, chosen))
        shares = shares / shares.sum(-1, keepdim=True)  # … and does not weigh
        outputs = torch.einsum("te,tw,ewv->tv", shares, tokens, experts)
        loss = (outputs - targets).square().mean()
        counts = chosen.flatten().bincount(minlength=NUM_EXPERTS)
        balance = NUM_EXPERTS * (counts / counts.sum() * scores.mean(0)).sum()
        (loss + (LOSS_WEIGHT * balance if way == "auxiliary" else 0)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if way == "bias":  # a little more for experts below the mean, a little less above it
            bias += BIAS_STEP * (counts.double().mean() - counts).sign()
        losses.append(loss.item())
        loads.append((counts.max() / counts.double().mean()).item())
    last = slice(-STEPS // 6, None)
    return torch.tensor(losses[last]).mean().item(), torch.tensor(loads[last]).mean().item()


report = {}
for way in ("none", "auxiliary", "bias"):
    report[f"{way}_loss"], report[f"{way}_busiest"] = train(way)
    loss, busiest = report[f"{way}_loss"], report[f"{way}_busiest"]
    print(f"balance by {way:>9}: loss {loss:.3f}, busiest expert {busiest:.2f} × an even share")
report = [report]
dist.destroy_process_group()
