"""What ranks along an axis divide, sum or share: each rule kept, then broken, beside one process.

Data ranks have samples of their own. Tensor ranks share the samples, and each has some heads of
attention and a part of the vocabulary. Sequence ranks are tensor ranks that also divide the
tokens of each sample outside of attention. Everything is computed in float64.

torchrun --nproc-per-node 2 who_divides_what.py
"""

import time
from functools import partial

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy, layer_norm, scaled_dot_product_attention

SAMPLES, TOKENS, WIDTH, HEADS, VOCABULARY = 4, 64, 16, 4, 32
PADDING = -100  # the label of a token that does not count
# The dimension along which ranks divide a weight; each rank has the other weights whole.
HEADS_OF = {"projections": 1, "output": 0}
DIVIDED = {"data": {}, "tensor": HEADS_OF | {"head": 1}, "sequence": HEADS_OF}


def own(tensor, dim):
    return tensor.chunk(dist.get_world_size(), dim)[dist.get_rank()]


def reduced(tensor, op=dist.ReduceOp.SUM):
    result = tensor.detach().clone()
    dist.all_reduce(result, op)
    return result


def gathered(part):
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part.contiguous())
    return torch.cat(parts, 1)


def reduced_and_scattered(tensor):
    return own(reduced(tensor), 1)  # as gloo does it


def identity(tensor):
    return tensor.view_as(tensor)


NOTHING = identity, identity


class Communicate(torch.autograd.Function):
    """One function in forward, and another in backward."""

    @staticmethod
    def forward(ctx, tensor, forward, backward):
        ctx.backward_does = backward
        return forward(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.backward_does(gradient), None, None


def dropped(shape, seed):
    """A mask of dropout: it drops half of the values and doubles the others."""
    generator = torch.Generator().manual_seed(seed)
    return 2.0 * torch.randint(2, shape, generator=generator)


def build():
    torch.manual_seed(0)
    shapes = {
        "embedding": (VOCABULARY, WIDTH), "position": (2 * TOKENS, WIDTH), "scale": (WIDTH,),
        "projections": (3, HEADS, WIDTH, WIDTH // HEADS), "output": (HEADS, WIDTH // HEADS, WIDTH),
        "head": (WIDTH, VOCABULARY),
    }  # fmt: skip
    return {name: torch.randn(shape, dtype=torch.float64) / 2 for name, shape in shapes.items()}


def batch():
    tokens = torch.randint(VOCABULARY, (SAMPLES, TOKENS + 1))
    tokens, labels = tokens[:, :-1], tokens[:, 1:].clone()
    labels[0, 10:] = PADDING
    return tokens, labels


def hidden_states(weights, tokens, positions, mask, before=NOTHING, after=NOTHING):
    """The result of a block; `before` and `after` are what attention sends, in each pass."""
    residual = weights["embedding"][tokens] + weights["position"][positions]
    normal = layer_norm(residual, [WIDTH]) * weights["scale"]
    normal = Communicate.apply(normal, *before)
    query, key, value = torch.einsum("btw,phwd->pbhtd", normal, weights["projections"])
    heads = scaled_dot_product_attention(query, key, value, is_causal=True)
    heads_outputs = torch.einsum("bhtd,hdw->btw", heads, weights["output"])
    return residual + mask * Communicate.apply(heads_outputs, *after)


def sum_of_losses(logits, labels):
    return cross_entropy(logits.mT, labels, ignore_index=PADDING, reduction="sum")


def sum_of_losses_by_vocabulary(logits, labels):
    """The same, if each rank has a part of the logits; it sends three numbers for each token."""
    largest = reduced(logits.amax(-1), dist.ReduceOp.MAX)
    total = Communicate.apply((logits - largest[..., None]).exp().sum(-1), reduced, identity)
    own_labels, is_own = in_own_vocabulary(labels, logits)
    picked = logits.gather(-1, own_labels[..., None])[..., 0].where(is_own, 0)
    picked = Communicate.apply(picked, reduced, identity)
    return ((total.log() + largest - picked) * (labels != PADDING)).sum()


def in_own_vocabulary(labels, logits):
    """Labels counted from the first that the rank has, and which of them it has."""
    labels = labels - dist.get_rank() * logits.shape[-1]
    is_own = (labels >= 0) & (labels < logits.shape[-1])
    return labels.where(is_own, 0), is_own


def stored(axis):
    """By name, what a rank along an axis stores of each weight."""
    divided = DIVIDED[axis]
    return {
        name: (own(weight, divided[name]) if name in divided else weight).clone().requires_grad_()
        for name, weight in build().items()
    }


def gradients_of(loss, weights):
    return dict(zip(weights, torch.autograd.grad(loss, [*weights.values()]), strict=True))


def num_labels():
    return (batch()[1] != PADDING).sum().item()


def one_process():
    weights = stored("data")
    (tokens, labels), mask = batch(), dropped((SAMPLES, TOKENS, WIDTH), seed=0)
    hidden = hidden_states(weights, tokens, torch.arange(TOKENS), mask)
    return gradients_of(sum_of_losses(hidden @ weights["head"], labels) / num_labels(), weights)


def data_rank(rule):
    rank, size = dist.get_rank(), dist.get_world_size()
    weights = stored("data")
    tokens, labels = (rule("batch", own(part, 0), part[: SAMPLES // size]) for part in batch())
    positions = torch.arange(TOKENS) + rule("positions", 0, rank * TOKENS)
    mask = own(dropped((SAMPLES, TOKENS, WIDTH), seed=0), 0)
    mask = rule("dropout", mask, dropped(mask.shape, seed=0))
    hidden = hidden_states(weights, tokens, positions, mask)
    loss = sum_of_losses(hidden @ weights["head"], labels)
    # Ranks average gradients, so a share of the mean over all labels needs their number as factor.
    num_own = (labels != PADDING).sum().item()
    gradients = gradients_of(loss * rule("labels", size / num_labels(), 1 / num_own), weights)
    factor = rule("gradients", 1 / size, 1)
    gradients = {name: reduced(gradient) * factor for name, gradient in gradients.items()}
    square = square_of(gradients)
    return gradients, rule("norm", square, reduced(square)), mask


def tensor_rank(rule):
    weights = stored("tensor")
    tokens, labels = (rule("batch", part, own(part, 0)) for part in batch())
    positions = torch.arange(TOKENS) + rule("positions", 0, dist.get_rank() * TOKENS)
    mask = dropped((len(tokens), TOKENS, WIDTH), seed=rule("dropout", 0, dist.get_rank()))
    before, after = (identity, reduced), (reduced, identity)
    hidden = hidden_states(weights, tokens, positions, mask, before, after)
    logits = Communicate.apply(hidden, *before) @ weights["head"]
    if rule("labels", True, False):
        loss = sum_of_losses_by_vocabulary(logits, labels)
    else:  # a softmax over the own part of the vocabulary
        own_labels, is_own = in_own_vocabulary(labels, logits)
        loss = sum_of_losses(logits, own_labels.where(is_own, PADDING))
    gradients = gradients_of(loss / num_labels(), weights)
    averaged = {name: reduced(part) / dist.get_world_size() for name, part in gradients.items()}
    gradients = rule("gradients", gradients, averaged)
    of_parts = square_of({name: gradients[name] for name in DIVIDED["tensor"]})
    of_whole = square_of(gradients) - of_parts
    return gradients, of_whole + rule("norm", reduced(of_parts), of_parts), mask


def sequence_rank(rule):
    rank, size = dist.get_rank(), dist.get_world_size()
    weights = stored("sequence")
    tokens, labels = (own(rule("batch", part, part.roll(rank, 0)), 1) for part in batch())
    # Shifted after the tokens were divided, the last token of each rank has no label.
    shifted = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], PADDING)], 1)
    labels = rule("labels", labels, shifted.where(labels != PADDING, PADDING))
    positions = torch.arange(TOKENS // size) + rule("positions", rank * TOKENS // size, 0)
    mask = own(dropped((SAMPLES, TOKENS, WIDTH), seed=0), 1)
    mask = rule("dropout", mask, dropped(mask.shape, seed=0))
    before, after = (gathered, reduced_and_scattered), (reduced_and_scattered, gathered)
    hidden = hidden_states(weights, tokens, positions, mask, before, after)
    loss = sum_of_losses(hidden @ weights["head"], labels) / num_labels()
    own_only = gradients_of(loss, weights)  # a weight that is whole was used for own tokens only
    whole = [name for name in weights if name not in DIVIDED["sequence"]]
    gradients = own_only | rule("gradients", {name: reduced(own_only[name]) for name in whole}, {})
    of_parts = reduced(square_of({name: own_only[name] for name in DIVIDED["sequence"]}))
    of_whole = square_of({name: rule("norm", gradients, own_only)[name] for name in whole})
    return gradients, of_parts + of_whole, mask


def square_of(gradients):
    return sum(gradient.square().sum() for gradient in gradients.values())


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
    true, report = one_process(), {}
    for step in (data_rank, tensor_rank, sequence_rank):
        axis = step.__name__.removesuffix("_rank")
        for rule in ("gradients", "norm", "dropout", "batch", "positions", "labels"):
            for state, broken_rule in (("kept", ""), ("broken", rule)):
                gradients, square, mask = step(partial(kept_or_broken, broken_rule))
                error = distance(gradients, true, DIVIDED[axis])
                if rule == "norm":
                    error = ((square / square_of(true)).sqrt() - 1).abs()
                if rule == "dropout":  # how many per cent of the places both ranks treat alike
                    error = (mask == reduced(mask) - mask).double().mean() * 100
                share = error.item()
                report[f"{axis}_{rule}_{state}"] = round(share) if rule == "dropout" else share
            if dist.get_rank() == 0:
                kept, broken = (report[f"{axis}_{rule}_{state}"] for state in ("kept", "broken"))
                unit = "% alike" if rule == "dropout" else ""
                print(f"{axis:>8} {rule:>9}  kept {kept:.3g}{unit}, broken {broken:.3g}{unit}")
    errors = {name: error for name, error in report.items() if "dropout" not in name}
    report["largest_kept"] = max(errors[name] for name in errors if name.endswith("kept"))
    report["smallest_broken"] = min(errors[name] for name in errors if name.endswith("broken"))
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [report]


if __name__ == "__main__":
    report = main()
