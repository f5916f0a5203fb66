"""Four results of bf16 or fp16 numbers, computed in that type and in fp32.

torchrun --nproc-per-node 1 kept_in_fp32.py
"""

import torch
from torch.nn.functional import cross_entropy

POSITIONS, WIDTH, EXPERTS, TOKENS, VOCABULARY = 8192, 64, 64, 2048, 4096

torch.manual_seed(0)
positions, pairs = torch.arange(POSITIONS), torch.arange(0, 1, 2 / WIDTH)
tokens = torch.randn(TOKENS, 256).bfloat16()
router = (torch.randn(256, EXPERTS) / 16).bfloat16()
logits = torch.randn(TOKENS, VOCABULARY).bfloat16()
labels = torch.randint(VOCABULARY, (TOKENS,))
large = (torch.randn(TOKENS, 256) * 300).half()


def table(dtype):
    """Cosines of rotary positions: each pair of features turns at a rate of its own."""
    return (positions.to(dtype)[:, None] / (10000**pairs).to(dtype)).cos()


def experts(dtype):
    """The two experts of each token with the largest scores."""
    return (tokens.to(dtype) @ router.to(dtype)).topk(2).indices.sort(1).values


def norm(dtype):
    """Features divided by the root of their mean square."""
    wide = large.to(dtype)
    return wide * (wide.square().mean(1, keepdim=True) + 1e-6).rsqrt()


def loss(dtype):
    return cross_entropy(logits.to(dtype), labels)


double, report = torch.float64, {}
for name, narrow in {"bf16": torch.bfloat16, "fp32": torch.float32}.items():
    of_norm = torch.float16 if name == "bf16" else narrow
    report |= {
        f"table_{name}": (table(narrow).double() - table(double)).abs().max().item(),
        f"router_{name}": (experts(narrow) != experts(double)).any(1).double().mean().item(),
        f"loss_{name}": (loss(narrow).double() - loss(double)).abs().item(),
        f"norm_{name}": (norm(of_norm).double() - norm(double)).abs().max().item(),
    }
    print(name, *(f"{key} {value:.2g}" for key, value in report.items() if name in key))
distinct = positions.bfloat16().unique()
report |= {"num_positions": len(distinct), "spacing": (distinct[-1] - distinct[-2]).item()}
report = [report]
