"""Causal attention of one sequence on several ranks: keys gathered, heads exchanged, or a ring.

Every rank has tokens of its own, and computes in float64. Forward and backward are compared with
one process; each rank counts what it sends, which keys it holds, and its scores of every turn.

    python -m runners run sequences
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import scaled_dot_product_attention

from proofbook.runners.api import Count, Declaration, RunSettings, Setting
from proofbook.runners.training.rank import Rank

DOUBLE_BYTES = 8  # of a value in float64
HIDDEN = -1e9  # a score that counts nothing, and leaves sums finite where all of a row are hidden


class Ranks:
    """The ranks around a ring, or that exchange; counts bytes, calls, keys held and scores."""

    def __init__(self, group: dist.ProcessGroup, settings: Settings, places: list[Tensor]) -> None:
        self.group, self.settings, self.places = group, settings, places
        self.size, self.own = dist.get_world_size(group), dist.get_rank(group)
        self.num_sent = self.num_calls = self.num_held = 0
        self.scores: list[int] = []

    def hold(self, *keys: Tensor) -> None:
        """Note keys and values that are held at the same time, each tensor once."""
        held = {one.data_ptr(): one.nbytes for one in keys}
        self.num_held = max(self.num_held, sum(held.values()))

    def sent(self, num_bytes: int) -> None:
        """Count a call, and what goes to other ranks in it."""
        self.num_calls += 1
        self.num_sent += num_bytes

    def passed(self, tensor: Tensor) -> Tensor:
        """What the previous rank of the ring had; this rank's tensor goes to the next."""
        received = torch.empty_like(tensor)
        ahead, behind = (self.own + 1) % self.size, (self.own - 1) % self.size
        sending = dist.isend(tensor, group=self.group, group_dst=ahead)
        dist.recv(received, group=self.group, group_src=behind)
        assert sending is not None
        sending.wait()
        self.sent(tensor.nbytes)
        return received

    def swapped(self, parts: Tensor) -> Tensor:
        """(ranks, …), a part for each rank → the parts that they have for this one."""
        received = torch.empty_like(parts)
        dist.all_to_all_single(received, parts.contiguous(), group=self.group)
        self.sent(parts.nbytes - parts[0].nbytes)
        return received

    def block(self, queries: Tensor, keys: Tensor, source: int) -> tuple[Tensor, Tensor]:
        """(heads, tokens, width), and keys of a rank → their scores, and which are visible."""
        visible = _visible(self.settings, self.places[self.own], self.places[source])
        scores = queries @ _for_queries(keys[0], queries).mT / queries.shape[-1] ** 0.5
        return scores.masked_fill(~visible, HIDDEN), visible


class Kept(FunctionCtx):
    """What backward needs of forward."""

    ranks: Ranks
    axes: tuple[int, int]
    saved_tensors: tuple[Tensor, ...]


class Gather(torch.autograd.Function):
    """Gather the keys of all ranks; in backward, each rank adds the gradients of its own."""

    @staticmethod
    def forward(ctx: Kept, own: Tensor, ranks: Ranks) -> Tensor:
        """(keys and values, heads, tokens, width) → with the tokens of all ranks."""
        ctx.ranks, parts = ranks, own.new_empty(ranks.size, *own.shape)
        dist.all_gather_into_tensor(parts.flatten(0, 1), own.contiguous(), group=ranks.group)
        ranks.sent((ranks.size - 1) * own.nbytes)
        ranks.hold(own, parts)
        return torch.cat(list(parts), -2)

    @staticmethod
    def backward(ctx: Kept, gradient: Tensor) -> tuple[Tensor, None]:
        """Send each rank the gradients of its keys: a reduce-scatter, which gloo does not have."""
        return ctx.ranks.swapped(torch.stack(gradient.chunk(ctx.ranks.size, -2))).sum(0), None


class Exchange(torch.autograd.Function):
    """Some heads of all tokens for all heads of some tokens, or the reverse; so does backward."""

    @staticmethod
    def forward(ctx: Kept, tensor: Tensor, ranks: Ranks, given: int, taken: int) -> Tensor:
        """Divide the axis `given`, and put together the axis `taken`."""
        ctx.ranks, ctx.axes = ranks, (taken, given)
        received = ranks.swapped(torch.stack(tensor.chunk(ranks.size, given)))
        return torch.cat(list(received), taken)

    @staticmethod
    def backward(ctx: Kept, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """Exchange the gradients the other way around."""
        return Exchange.forward(ctx, gradient, ctx.ranks, *ctx.axes), None, None, None


class Ring(torch.autograd.Function):
    """Keys and values go around the ring; in backward once more, and their gradients with them."""

    @staticmethod
    def forward(ctx: Kept, queries: Tensor, own: Tensor, ranks: Ranks) -> Tensor:
        """(heads, tokens, width) → the same; merges the outputs of each turn by their log-sums."""
        output, total = torch.zeros_like(queries), queries.new_full((*queries.shape[:2], 1), HIDDEN)
        keys = own
        for turn in range(ranks.size):
            scores, visible = ranks.block(queries, keys, (ranks.own - turn) % ranks.size)
            ranks.scores.append(int(visible.sum()) * len(queries))
            log_sum = torch.logaddexp(total, scores.logsumexp(-1, keepdim=True))
            weights = (scores - log_sum).exp()
            output = output * (total - log_sum).exp() + weights @ _for_queries(keys[1], queries)
            total = log_sum
            if turn < ranks.size - 1:
                leaving, keys = keys, ranks.passed(keys)
                ranks.hold(own, leaving, keys)
        ctx.ranks = ranks
        ctx.save_for_backward(queries, own, output, total)
        return output

    @staticmethod
    def backward(ctx: Kept, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        """The sums of exponentials are those of forward; gradients of keys arrive at home last."""
        (queries, keys, output, total), ranks = ctx.saved_tensors, ctx.ranks
        of_queries, of_keys = torch.zeros_like(queries), torch.zeros_like(keys)
        mean = (gradient * output).sum(-1, keepdim=True)
        for turn in range(ranks.size):
            weights = (ranks.block(queries, keys, (ranks.own - turn) % ranks.size)[0] - total).exp()
            of_values = weights.mT @ gradient
            of_scores = weights * (gradient @ _for_queries(keys[1], queries).mT - mean)
            of_scores /= queries.shape[-1] ** 0.5
            of_queries += of_scores @ _for_queries(keys[0], queries)
            parts = torch.stack([of_scores.mT @ queries, of_values])
            of_keys += parts.unflatten(1, (keys.shape[1], -1)).sum(2)  # heads that share keys
            if turn < ranks.size - 1:
                keys = ranks.passed(keys)
            if ranks.size > 1 and ranks.settings.strategy != "ring_kept":
                of_keys = ranks.passed(of_keys)
        return of_queries, of_keys, None


def _for_queries(keys: Tensor, queries: Tensor) -> Tensor:
    return keys.repeat_interleave(len(queries) // len(keys), 0)


def _visible(settings: Settings, queries: Tensor, keys: Tensor) -> Tensor:
    """Which keys each query sees, by their places: earlier ones of its document."""
    lengths = torch.tensor(settings.lengths)
    document = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    return (queries[:, None] >= keys) & (document[queries][:, None] == document[keys])


def _places(settings: Settings) -> list[Tensor]:
    """The places in the sequence of each rank's tokens."""
    tokens, size = torch.arange(settings.num_tokens), settings.world_size
    if settings.order == "contiguous":
        return list(tokens.chunk(size))
    by_document = settings.order == "each_document"
    pieces = tokens.split(settings.lengths) if by_document else [tokens]
    blocks = [piece.chunk(2 * size) for piece in pieces]
    return [torch.cat([part for of in blocks for part in (of[n], of[-1 - n])]) for n in range(size)]


def divided(rank: Rank[Settings]) -> None:
    """Forward and backward of the rank's tokens, and of one process beside it."""
    settings, size = rank.settings, rank.world_size
    draw = partial(torch.randn, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tokens = settings.num_tokens, settings.head_width
    queries, gradient = draw(2, settings.num_query_heads, *tokens)
    keys = draw(2, settings.num_key_heads, *tokens)
    places, sizes = _places(settings), settings.mesh_sizes
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("ring", "heads"))
    own, inner = places[rank.rank], sizes[1]
    together = [torch.cat(places[n : n + inner]) for n in range(0, size, inner)]
    mine = [whole[..., own, :].clone().requires_grad_() for whole in (queries, keys)]
    for _ in rank.steps(1):
        around, across = (
            Ranks(mesh.get_group(name), settings, together) for name in ("ring", "heads")
        )
        own_queries, own_keys = mine
        if settings.strategy == "gather":
            output = _attended_to_all(own_queries, own_keys, around)
        elif inner > 1:
            own_keys = own_keys.repeat_interleave(settings.num_copies, 1)
            own_queries = _applied(Exchange, own_queries, across, 0, 1)
            own_keys = _applied(Exchange, own_keys, across, 1, 2)
            around.hold(own_keys, mine[1])
            output = _applied(Exchange, _applied(Ring, own_queries, own_keys, around), across, 1, 0)
        else:
            output = _applied(Ring, own_queries, own_keys, around)
        forward = around.num_sent + across.num_sent
        gradients = torch.autograd.grad(output, mine, gradient[:, own])
    rank.measure("forward_sent_bytes", forward, unit="bytes")
    rank.measure("sent_bytes", around.num_sent + across.num_sent, unit="bytes")
    rank.measure("num_calls", around.num_calls + across.num_calls, unit="calls")
    rank.measure("held_key_bytes", around.num_held, unit="bytes")
    rank.measure("turn_scores", around.scores, unit="scores")
    rank.measure("num_scores", sum(around.scores), unit="scores")
    slowest = torch.tensor(around.scores)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)  # each turn lasts as long as its busiest rank
    rank.measure("num_scores_with_waiting", int(slowest.sum()), unit="scores")
    whole = [tensor.clone().requires_grad_() for tensor in (queries, keys)]
    everywhere = torch.arange(settings.num_tokens)
    true = _attended(whole[0], whole[1], _visible(settings, everywhere, everywhere))
    of_whole = torch.autograd.grad(true, whole, gradient)
    apart = [(output - true[:, own]).abs().max().item()]
    pairs = zip(gradients, of_whole, strict=True)
    apart += [(ours - true[..., own, :]).abs().max().item() for ours, true in pairs]
    for name, value in zip(("outputs", "queries", "keys"), apart, strict=True):
        rank.measure(f"{name}_difference", value, unit="difference")


def _applied(function: type[torch.autograd.Function], *args: object) -> Tensor:
    output: Tensor = function.apply(*args)
    return output


def _attended_to_all(queries: Tensor, own: Tensor, ranks: Ranks) -> Tensor:
    """One turn over the gathered keys of all ranks."""
    keys = _applied(Gather, own, ranks)
    visible = _visible(ranks.settings, ranks.places[ranks.own], torch.cat(ranks.places))
    ranks.scores.append(int(visible.sum()) * len(queries))
    return _attended(queries, keys, visible)


def _attended(queries: Tensor, keys: Tensor, visible: Tensor) -> Tensor:
    key, value = keys[:, None]
    attend = partial(scaled_dot_product_attention, attn_mask=visible, enable_gqa=True)
    return attend(queries[None], key, value)[0]


QUESTION = "What do three ways to divide a sequence send, hold and compute, and do they agree?"


class Settings(RunSettings):
    """A causal attention, and how ranks divide its tokens."""

    num_tokens: Count = 64
    num_query_heads: Count = 8
    num_key_heads: Count = 4
    head_width: Count = 8
    order: Literal["contiguous", "head_tail", "each_document"] = "contiguous"
    documents: tuple[Count, ...] = ()  # lengths, where several are packed; else one is the sequence
    equal_parts = (("num_tokens", "world_size"), ("num_query_heads", "num_key_heads"))

    @property
    def lengths(self) -> list[int]:
        """Tokens of each document."""
        return list(self.documents) or [self.num_tokens]

    def check(self) -> None:
        """Refuse documents that are not the sequence."""
        if sum(self.lengths) != self.num_tokens:
            raise ValueError(f"documents must have {self.num_tokens} tokens together")

    @property
    def mesh_sizes(self) -> tuple[int, int]:
        """Ranks around a ring, and ranks that exchange heads."""
        inner = {"heads": self.world_size, "both": 2}.get(self.strategy, 1)
        return self.world_size // inner, inner

    @property
    def num_copies(self) -> int:
        """Copies of each key head that travel, where fewer key heads than ranks exchange them."""
        return max(1, self.mesh_sizes[1] // self.num_key_heads)

    def closed_forms(self) -> dict[str, Setting]:
        """Bytes of a rank's keys and values, of its queries; what is sent, held and computed.

        In units of a rank's keys and values, a ring passes n - 1 on in forward; in backward these
        again, and their gradients n times. An exchange keeps one part of n at home.
        """
        (around, inner), copies = self.mesh_sizes, self.num_copies
        row_bytes = DOUBLE_BYTES * self.num_tokens * self.head_width // self.world_size
        part, queries = 2 * row_bytes * self.num_key_heads, row_bytes * self.num_query_heads
        exchanged = (copies * part + 2 * queries) * (inner - 1) // inner
        passed = 2 * (around - 1) if self.strategy == "gather" else 3 * around - 2
        scores = self.num_query_heads * sum(n * (n + 1) // 2 for n in self.lengths)
        parts_held = around + 1 if self.strategy == "gather" else min(around, 3)
        return {
            "num_documents": len(self.lengths),
            "part_bytes": part,
            "query_bytes": queries,
            "predicted_forward_bytes": (around - 1) * copies * part + exchanged,
            "predicted_bytes": (passed if around > 1 else 0) * part + 2 * exchanged,
            "predicted_calls": (2 if self.strategy == "gather" else passed * (around > 1))
            + 6 * (inner > 1),
            "predicted_held_bytes": (1 + copies if inner > 1 else parts_held) * part,
            "num_balanced_scores": scores // self.world_size,
        }


STRATEGIES = dict.fromkeys(("gather", "heads", "ring", "both", "ring_kept"), divided)
run = partial(Declaration, only_on_cpu=True)
head_tail = Settings(order="head_tail")
RUNS = {
    **{
        f"{way}_{size}{suffix}": run(way, size, settings)
        for way in ("gather", "heads", "ring")
        for size in (2, 4)
        for suffix, settings in {"": Settings(), "_head_tail": head_tail}.items()
    },
    "both_4": run("both", 4, Settings()),
    "both_4_head_tail": run("both", 4, head_tail),
    "few_keys": run("heads", 4, Settings(num_key_heads=2)),
    **{
        f"packed_{order}": run("ring", 4, Settings(order=order, documents=(32, 16, 16)))
        for order in ("contiguous", "head_tail", "each_document")
    },
    "ring_kept": run("ring_kept", 4, head_tail),
}
