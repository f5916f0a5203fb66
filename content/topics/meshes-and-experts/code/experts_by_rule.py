"""Experts along an axis of ranks: each rule kept, then broken, beside one process.

Expert ranks have samples of their own, as data ranks do, and each stores some of the experts.
Tensor ranks share the samples, and each stores some hidden features of every expert. Everything
is computed in float64.

torchrun --nproc-per-node 4 experts_by_rule.py
"""

import time
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn.functional import cross_entropy

SAMPLES, TOKENS, WIDTH, HIDDEN, VOCABULARY = 8, 16, 8, 16, 16
NUM_EXPERTS, NUM_CHOSEN, BALANCE = 8, 2, 1.0
PADDING = -100  # the label of a token that does not count
EXPERTS = ("up", "down", "bias")
# The dimension along which ranks divide a weight; each rank has the other weights whole.
DIVIDED = {"expert": dict.fromkeys(EXPERTS, 0), "tensor": {"up": 2, "down": 1}}


def own(tensor, dim=0):
    return tensor.chunk(dist.get_world_size(), dim)[dist.get_rank()]


def reduced(tensor):
    result = tensor.detach().clone()
    dist.all_reduce(result)
    return result


def identity(tensor):
    return tensor.view_as(tensor)


class Communicate(torch.autograd.Function):
    """One function in forward, and another in backward."""

    @staticmethod
    def forward(ctx, tensor, forward, backward):
        ctx.backward_does = backward
        return forward(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.backward_does(gradient), None, None


def build():
    torch.manual_seed(0)
    shapes = {
        "embedding": (VOCABULARY, WIDTH), "position": (8 * TOKENS, WIDTH), "below": (WIDTH, WIDTH),
        "router": (WIDTH, NUM_EXPERTS), "up": (NUM_EXPERTS, WIDTH, HIDDEN),
        "down": (NUM_EXPERTS, HIDDEN, WIDTH), "bias": (NUM_EXPERTS, WIDTH),
        "head": (WIDTH, VOCABULARY),
    }  # fmt: skip
    return {name: torch.randn(shape, dtype=torch.float64) / 2 for name, shape in shapes.items()}


def batch():
    tokens = torch.randint(VOCABULARY, (SAMPLES, TOKENS + 1), generator=seeded(1))
    tokens, labels = tokens[:, :-1], tokens[:, 1:].clone()
    labels[0, 4:] = PADDING
    return tokens, labels


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def dropped(num_samples, seed):
    """A mask of dropout: it drops half of the values and doubles the others."""
    shape = (num_samples, TOKENS, WIDTH)
    return 2.0 * torch.randint(2, shape, generator=seeded(seed))


def through_experts(weights, rows, experts):
    """Rows through the experts that `experts` names, those of `weights` counted from 0."""
    order = experts.argsort(stable=True)
    parts = rows[order].split(experts.bincount(minlength=len(weights["up"])).tolist())
    all_weights = zip(parts, *(weights[name] for name in EXPERTS), strict=True)
    outputs = torch.cat([(part @ up).relu() @ down + bias for part, up, down, bias in all_weights])
    return outputs[order.argsort()]


def through_experts_of_all_ranks(weights, rows, experts):
    """Send rows to the ranks of their experts, and what these experts return back."""
    size, order = dist.get_world_size(), experts.argsort(stable=True)
    counts = experts.bincount(minlength=NUM_EXPERTS)
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts)  # first the counts, then the rows
    sent, received = (of.view(size, -1).sum(1).tolist() for of in (counts, arriving))
    rows = all_to_all_single_autograd(rows[order], received, sent, dist.group.WORLD)
    own_experts = torch.arange(NUM_EXPERTS // size).repeat(size).repeat_interleave(arriving)
    outputs = through_experts(weights, rows, own_experts)
    return all_to_all_single_autograd(outputs, sent, received, dist.group.WORLD)[order.argsort()]


def forward(weights, tokens, positions, mask, experts, before=identity, after=identity):
    """Logits, and how many rows and which mean score each expert has."""
    residual = weights["embedding"][tokens] + weights["position"][positions]
    residual = (residual + (residual @ weights["below"]).tanh()).flatten(0, 1)
    scores = (residual @ weights["router"]).softmax(-1)
    shares, chosen = scores.topk(NUM_CHOSEN)
    rows, shares = before(residual), before(shares / shares.sum(-1, keepdim=True))
    outputs = experts(weights, rows.repeat_interleave(NUM_CHOSEN, 0), chosen.flatten())
    outputs = after((outputs.unflatten(0, chosen.shape) * shares[..., None]).sum(1))
    logits = (residual + mask.flatten(0, 1) * outputs) @ weights["head"]
    return logits, chosen.flatten().bincount(minlength=NUM_EXPERTS), scores.mean(0)


def sum_of_losses(logits, labels):
    return cross_entropy(logits, labels.flatten(), ignore_index=PADDING, reduction="sum")


def balance_of(counts, scores):
    """The loss that balances the experts: 1 if all are used alike."""
    return NUM_EXPERTS * (counts / counts.sum() * scores).sum()


def num_labels(labels):
    return (labels != PADDING).sum().item()


def gradients_of(weights):
    return {name: weight.grad for name, weight in weights.items()}


def square_of(gradients):
    return sum(gradient.square().sum() for gradient in gradients.values())


def one_process(weights):
    tokens, labels = batch()
    mask = dropped(SAMPLES, seed=0)
    logits, counts, scores = forward(weights, tokens, torch.arange(TOKENS), mask, through_experts)
    loss = sum_of_losses(logits, labels) / num_labels(labels) + BALANCE * balance_of(counts, scores)
    loss.backward()
    return gradients_of(weights), loss.item()


def expert_rank(weights, rule):
    rank, size = dist.get_rank(), dist.get_world_size()
    tokens, labels = (rule("batch", own(part), part[: SAMPLES // size]) for part in batch())
    positions = torch.arange(TOKENS) + rule("positions", 0, rank * TOKENS)
    mask = own(dropped(SAMPLES, seed=0))
    mask = rule("dropout", mask, dropped(len(mask), seed=0))
    experts = through_experts_of_all_ranks
    logits, counts, scores = forward(weights, tokens, positions, mask, experts)
    # Ranks average gradients, so a share of the mean over all labels needs their number as factor.
    factor = rule("labels", size / num_labels(batch()[1]), 1 / max(1, num_labels(labels)))
    balance = balance_of(rule("balance", reduced(counts), counts), scores)
    loss = sum_of_losses(logits, labels) * factor + BALANCE * balance
    loss.backward()
    # An expert's gradient is a sum over the tokens of all ranks already.
    factor = rule("gradients", 1 / size, 1)
    of_experts = {name: weights[name].grad * factor for name in EXPERTS}
    averaged = {n: reduced(w.grad) / size for n, w in weights.items() if n not in EXPERTS}
    square = square_of(of_experts)
    square = rule("norm", reduced(square), square) + square_of(averaged)
    return averaged | of_experts, square, reduced(loss).item() / size, mask


def tensor_rank(weights, rule):
    size, (tokens, labels) = dist.get_world_size(), batch()
    mask = dropped(SAMPLES, seed=rule("dropout", 0, dist.get_rank()))
    # Each rank adds the bias to its part of the sum.
    divided = Communicate.apply(weights["bias"], lambda bias: bias / size, identity)
    own_weights = weights | {"bias": rule("bias", divided, weights["bias"])}
    logits, counts, scores = forward(
        own_weights,
        tokens,
        torch.arange(TOKENS),
        mask,
        through_experts,
        before=lambda tensor: Communicate.apply(
            tensor, identity, rule("gradients", reduced, identity)
        ),
        after=lambda tensor: Communicate.apply(tensor, reduced, identity),
    )
    loss = sum_of_losses(logits, labels) / num_labels(labels) + BALANCE * balance_of(counts, scores)
    loss.backward()
    gradients = gradients_of(weights)
    square = square_of({name: gradients[name] for name in DIVIDED["tensor"]})
    whole = {name: gradients[name] for name in gradients if name not in DIVIDED["tensor"]}
    return gradients, rule("norm", reduced(square), square) + square_of(whole), loss.item(), mask


RULES = {
    expert_rank: ("gradients", "norm", "dropout", "batch", "positions", "labels", "balance"),
    tensor_rank: ("gradients", "norm", "dropout", "bias"),
}


def stored(axis, weights):
    """By name, what a rank along an axis stores of each weight."""
    divided = DIVIDED.get(axis, {})
    return {
        name: (own(weight, divided[name]) if name in divided else weight).clone().requires_grad_()
        for name, weight in weights.items()
    }


def distance(gradients, true, divided):
    """The relative error of the gradient that all ranks have together."""
    error = torch.zeros(2, dtype=torch.float64)
    for name, gradient in gradients.items():
        part = own(true[name], divided[name]) if name in divided else true[name]
        error += torch.stack([(gradient - part).square().sum(), part.square().sum()])
    return (reduced(error)[0] / reduced(error)[1]).sqrt()


def kept_or_broken(broken_rule, name, kept, broken):
    return broken if name == broken_rule else kept


def main():
    dist.init_process_group("gloo")
    report, errors = {}, {"kept": [], "broken": []}
    true, true_loss = one_process(stored("one process", build()))
    true_norm = square_of(true).sqrt()
    for step, rules in RULES.items():
        axis = step.__name__.removesuffix("_rank")
        for rule in rules:
            for state, broken_rule in (("kept", ""), ("broken", rule)):
                choose = partial(kept_or_broken, broken_rule)
                gradients, square, loss, mask = step(stored(axis, build()), choose)
                error = distance(gradients, true, DIVIDED[axis])
                if rule == "norm":
                    error = (square.sqrt() - true_norm).abs() / true_norm
                report[f"{axis}_{rule}_{state}"] = error.item()
                report[f"{axis}_{rule}_{state}_of_value"] = abs(loss - true_loss)
                if rule == "dropout":  # how many per cent of the places ranks 0 and 1 treat alike
                    masks = [torch.empty_like(mask) for _ in range(dist.get_world_size())]
                    dist.all_gather(masks, mask)
                    alike = (masks[0] == masks[1]).double().mean().item()
                    report[f"{axis}_{rule}_{state}"] = round(100 * alike)
                else:
                    errors[state].append(error.item())
                if (axis, rule, state) == ("expert", "gradients", "broken"):
                    own_true = {name: own(true[name]) for name in EXPERTS}
                    own_gradients = {name: gradients[name] for name in EXPERTS}
                    ratio = (square_of(own_gradients) / square_of(own_true)).sqrt()
                    report["times_too_large"] = ratio.item()
            if dist.get_rank() == 0:
                kept, broken = (report[f"{axis}_{rule}_{state}"] for state in ("kept", "broken"))
                unit = "% alike" if rule == "dropout" else ""
                print(f"{axis:>6} {rule:>9}  kept {kept:.3g}{unit}, broken {broken:.3g}{unit}")
    report |= {"largest_kept": max(errors["kept"]), "smallest_broken": min(errors["broken"])}
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [report]


if __name__ == "__main__":
    report = main()
