"""What a divided block keeps for backward and sends: tensor parallelism, then by tokens as well.

Between two divided MLPs stands what every rank computes whole: normalization, dropout and the
residual. Sequence parallelism divides these by tokens. It sends as many bytes, or a quarter more
where a rank keeps only its own tokens of what it gathered, and gathers them again in backward.

torchrun --nproc-per-node 2 saved_and_sent.py
"""

import time

import torch
import torch.distributed as dist
from torch.nn.functional import dropout, gelu, layer_norm

TOKENS, WIDTH, HIDDEN, BLOCKS = 256, 64, 256, 2
sent = {"bytes": 0}


def own(tensor):
    return tensor.chunk(dist.get_world_size())[dist.get_rank()].contiguous()


def count(whole, times):
    """A ring sends, in each of `times` passes, all parts of a tensor but one."""
    size = dist.get_world_size()
    sent["bytes"] += times * whole.nbytes * (size - 1) // size


def reduced(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    count(total, times=2)
    return total


def gathered(part):
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part.contiguous())
    whole = torch.cat(parts)
    count(whole, times=1)
    return whole


def reduced_and_scattered(tensor):
    total = tensor.clone()
    dist.all_reduce(total)  # gloo has no reduce-scatter of its own
    count(total, times=1)
    return own(total)


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


class GatherThenMultiply(torch.autograd.Function):
    """A product of all ranks' tokens that saves the own ones, and gathers again in backward."""

    @staticmethod
    def forward(ctx, part, weight):
        ctx.save_for_backward(part, weight)
        return gathered(part) @ weight

    @staticmethod
    def backward(ctx, gradient):
        part, weight = ctx.saved_tensors
        return reduced_and_scattered(gradient @ weight.T), gathered(part).T @ gradient


def block(way, residual, weights):
    normal = layer_norm(residual, [WIDTH])
    if way == "tensor":
        hidden = Communicate.apply(normal, identity, reduced) @ weights[0]
    elif way == "sequence":
        hidden = Communicate.apply(normal, gathered, reduced_and_scattered) @ weights[0]
    else:
        hidden = GatherThenMultiply.apply(normal, weights[0])
    after = (reduced, identity) if way == "tensor" else (reduced_and_scattered, gathered)
    return residual + dropout(Communicate.apply(gelu(hidden) @ weights[1], *after), 0.1)


def train_step(way):
    """Bytes that a rank keeps for backward, parameters not counted, and bytes that it sends."""
    torch.manual_seed(0)
    size, kept = dist.get_world_size(), {}
    shapes = (WIDTH, HIDDEN // size), (HIDDEN // size, WIDTH)
    weights = [[torch.randn(s, requires_grad=True) for s in shapes] for _ in range(BLOCKS)]
    stored = {weight.untyped_storage().data_ptr() for pair in weights for weight in pair}
    residual = torch.randn(TOKENS, WIDTH, requires_grad=True)
    residual = residual if way == "tensor" else own(residual.detach()).requires_grad_()

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in stored:
            kept[storage.data_ptr()] = storage.nbytes(), tensor  # alive, so no address comes twice
        return tensor

    sent["bytes"] = 0
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        for pair in weights:
            residual = block(way, residual, pair)
    kept_bytes = sum(num_bytes for num_bytes, _ in kept.values())
    residual.square().sum().backward()
    return {"kept_bytes": kept_bytes, "sent_bytes": sent["bytes"]}


def main():
    dist.init_process_group("gloo")
    report = {}
    for way in ("tensor", "sequence", "sequence_gathered_again"):
        facts = train_step(way)
        report |= {f"{way}_{name}": fact for name, fact in facts.items()}
        if dist.get_rank() == 0:
            print(f"{way}: kept {facts['kept_bytes']:,} B, sent {facts['sent_bytes']:,} B")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [report]


if __name__ == "__main__":
    report = main()
