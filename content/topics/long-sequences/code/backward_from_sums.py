"""Backward of attention in blocks: probabilities come back from one number for each query.

Forward keeps the output and the logarithm of each query's sum of exponentials, and no scores.

torchrun --nproc-per-node 1 backward_from_sums.py
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

TOKENS, BLOCK, WIDTH = 256, 64, 32


def gradients(arriving, query, key, value, output, log_sums, wrong=""):
    """Of query, key and value, from a block of keys at a time."""
    along = (arriving * output).sum(1, keepdim=True)  # one number for each query, over all keys
    of_query, of_key, of_value = (torch.zeros_like(one) for one in (query, key, value))
    for some in torch.arange(TOKENS).split(BLOCK):
        scores = (query @ key[some].T).masked_fill(~MASK[:, some], -torch.inf)
        if wrong == "sums_of_block":
            log_sums = scores.logsumexp(1)
        weights = (scores - log_sums[:, None]).exp().nan_to_num(0.0)
        of_weights = arriving @ value[some].T
        if wrong == "mean_of_block":
            along = (weights * of_weights).sum(1, keepdim=True)
        of_scores = weights * (of_weights - along)
        of_value[some] = weights.T @ arriving
        of_key[some] = of_scores.T @ query
        of_query += of_scores @ key[some]
    return of_query, of_key, of_value


torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
MASK = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
inputs = [one.requires_grad_() for one in torch.randn(3, TOKENS, WIDTH).unbind()]
inputs[0].data /= WIDTH**0.5
arriving = torch.randn(TOKENS, WIDTH)
true = torch.autograd.grad(
    scaled_dot_product_attention(*inputs, is_causal=True, scale=1.0), inputs, arriving
)
query, key, value = (one.detach() for one in inputs)
scores = (query @ key.T).masked_fill(~MASK, -torch.inf)
log_sums, output = scores.logsumexp(1), scores.softmax(1) @ value
facts = {"scores_bytes": scores.nbytes, "log_sums_bytes": log_sums.nbytes}
for wrong in ("", "mean_of_block", "sums_of_block"):
    ours = gradients(arriving, query, key, value, output, log_sums, wrong)
    for name, one, right in zip(("query", "key", "value"), ours, true, strict=True):
        error = ((one - right).norm() / right.norm()).item()
        facts[f"{wrong or 'right'}_{name}"] = error
        print(f"{wrong or 'right':>14}, {name:>5}: relative error {error:.1e}")
facts["right"] = max(facts[f"right_{name}"] for name in ("query", "key", "value"))
report = [facts]
