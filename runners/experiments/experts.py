"""An expert layer on four ranks: tokens travel to experts, or the weights of experts to tokens.

Every rank has tokens of its own. `sent` stores some experts on each rank and sends it the tokens
that its experts are for; `gathered` shards all experts by FSDP and gathers them to compute. A
router chooses the experts, or the place of a token does, as benchmarks of throughput have it.

    python -m runners run experts
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from proofbook.runners.closed_forms.shape import FLOAT_BYTES
from proofbook.runners.core.declared.experiment import Declaration
from proofbook.runners.core.declared.settings import (
    Count,
    CountOrZero,
    Factor,
    RunSettings,
    Settled,
    closed_form,
)
from proofbook.runners.core.meters.collectives import AxisMeter
from proofbook.runners.core.meters.memory import local
from proofbook.runners.core.ranks.rank import NUM_METERED_STEPS, Rank
from proofbook.runners.core.trace.schema import Setting


class Router(nn.Module):
    """Which experts each token goes to, and how much each of them counts."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.scores = nn.Linear(settings.width, settings.num_experts, bias=False)
        self.settings = settings

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(tokens, width) → shares and experts, (tokens, choices) each, and the smallest margin."""
        settings = self.settings
        scores = self.scores(tokens).softmax(-1)
        best = scores.topk(settings.num_chosen + 1).values
        margin = (best[:, -2] - best[:, -1]).min()
        chosen = scores.topk(settings.num_chosen).indices
        if settings.strategy != "routed":
            chosen = _experts_by_place(settings, len(tokens))
        shares = scores.gather(1, chosen)
        return shares / shares.sum(-1, keepdim=True), chosen, margin


def _experts_by_place(settings: Settings, num_tokens: int) -> Tensor:
    """Of each rank's tokens, some go to the first experts only, the others to all in turn."""
    places = torch.arange(settings.num_tokens * settings.num_chosen)
    chosen = (places % settings.num_experts).view(settings.num_tokens, -1)
    chosen[: settings.num_skewed_tokens] = torch.arange(settings.num_chosen)
    return chosen.repeat(num_tokens // settings.num_tokens, 1)


class Experts(nn.Module):
    """Networks of two layers, some or all of the layer's experts."""

    def __init__(self, settings: Settings, number: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.empty(number, settings.width, settings.hidden))
        self.down = nn.Parameter(torch.empty(number, settings.hidden, settings.width))

    def forward(self, rows: Tensor, experts: Tensor) -> Tensor:
        """(rows, width) and the expert of each → (rows, width)."""
        order = experts.argsort(stable=True)
        parts = rows[order].split(experts.bincount(minlength=len(self.up)).tolist())
        weights = zip(parts, self.up, self.down, strict=True)
        outputs = torch.cat([(part @ up).relu() @ down for part, up, down in weights])
        return outputs[order.argsort()]


class Mixture(nn.Module):
    """A linear layer, a router and experts, whose outputs are added to the layer's."""

    def __init__(self, settings: Settings, rank: int, size: int) -> None:
        super().__init__()
        self.below = nn.Linear(settings.width, settings.width)
        self.router, self.settings, self.size = Router(settings), settings, size
        self.experts = Experts(settings, settings.num_experts // size)
        source = torch.Generator().manual_seed(settings.seed)
        with torch.no_grad():  # all ranks draw the whole model, and each takes its part
            for name, parameter in self.named_parameters():
                is_part = "experts" in name
                shape = (settings.num_experts, *parameter.shape[1:]) if is_part else parameter.shape
                whole = torch.randn(shape, generator=source) / settings.width**0.5
                parameter.copy_(whole.chunk(size)[rank] if is_part else whole)

    def forward(self, tokens: Tensor) -> Tensor:
        """(tokens, width) → the same; remembers margin, received rows and the busiest expert."""
        hidden = self.below(tokens)
        shares, chosen, self.margin = self.router(hidden)
        rows = hidden.repeat_interleave(self.settings.num_chosen, 0)
        counts = chosen.flatten().bincount(minlength=self.settings.num_experts)
        if self.size > 1:
            outputs = self._sent(rows, chosen.flatten(), counts)
        else:
            self.num_received = len(rows)
            outputs = self.experts(rows, chosen.flatten())
        self.counts = counts
        outputs = outputs.unflatten(0, chosen.shape) * shares[..., None]
        summed: Tensor = hidden + outputs.sum(1)
        return summed

    def _sent(self, rows: Tensor, experts: Tensor, counts: Tensor) -> Tensor:
        """Counts first, then the rows to the ranks of their experts, and the outputs back."""
        order, arriving = experts.argsort(stable=True), torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts)
        sent, received = (of.view(self.size, -1).sum(1).tolist() for of in (counts, arriving))
        world = dist.group.WORLD
        assert world is not None
        rows = all_to_all_single_autograd(rows[order], received, sent, world)
        self.num_received = len(rows)
        number = len(counts) // self.size
        own = torch.arange(number).repeat(self.size).repeat_interleave(arriving)
        outputs = all_to_all_single_autograd(self.experts(rows, own), sent, received, world)
        return outputs[order.argsort()]


def sent(rank: Rank[Settings]) -> None:
    """Train with experts on all ranks, and in one process in float64 beside it."""
    model = Mixture(rank.settings, rank.rank, rank.world_size)
    whole = None if rank.is_metered else Mixture(rank.settings, 0, 1).double()
    _train(rank, model, whole)


def gathered(rank: Rank[Settings]) -> None:
    """Train with all experts sharded by FSDP, which gathers them for the rank's own tokens."""
    model = Mixture(rank.settings, 0, 1)
    with rank.phase("wrap"):
        fully_shard(model.experts, reshard_after_forward=True)  # as below other layers
    _train(rank, model, None)


def _train(rank: Rank[Settings], model: Mixture, whole: Mixture | None) -> None:
    settings, size = rank.settings, rank.world_size
    source = torch.Generator().manual_seed(rank.seed + 1)
    samples = torch.randn(2, size, settings.num_tokens, settings.width, generator=source)
    tokens, targets = samples[:, rank.rank].clone()
    rank.inputs(tokens, targets)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    oracle = torch.optim.SGD(whole.parameters(), lr=settings.learning_rate) if whole else None
    rank.watch(model, optimizer)
    losses, margins = [], []
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("travelled",))
    axes = AxisMeter(mesh) if rank.is_metered else None
    for index in rank.steps(settings.num_steps):
        with axes if axes and index == NUM_METERED_STEPS - 1 else nullcontext():
            loss = (model(tokens) - targets).square().mean()
            loss.backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            if "experts" not in name:
                dist.all_reduce(parameter.grad)
            if "experts" not in name or rank.declaration.strategy != "gathered":
                parameter.grad /= size  # an expert's gradient is a sum over the ranks already
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if whole and oracle:
            _dense_loss(whole, *samples.double().flatten(1, 2)).backward()
            oracle.step()
            oracle.zero_grad()
            margins.append(float(whole.margin))
    rank.count_samples(settings.num_tokens)
    rank.measure("num_received_rows", model.num_received, unit="rows")
    if axes:  # tokens or weights, before the gradients of dense layers are summed
        travelled = (count for name, count in axes.measured().items() if name.endswith("_bytes"))
        rank.measure("travelled_bytes", sum(travelled), unit="bytes")
    if whole:
        mine = torch.stack(losses).double()
        dist.all_reduce(mine)
        rank.measure("losses", (mine / size).tolist(), unit="loss")
        rank.measure("smallest_margin", min(margins), unit="share")
        rank.measure("weights_difference", _apart(rank, model, whole))


def _dense_loss(whole: Mixture, tokens: Tensor, targets: Tensor) -> Tensor:
    """The loss of one process, where each token passes all experts and most outputs count 0."""
    hidden = whole.below(tokens)
    shares, chosen, whole.margin = whole.router(hidden)
    every = torch.zeros(len(tokens), whole.settings.num_experts, dtype=tokens.dtype)
    every = every.scatter(1, chosen, shares)
    inner = torch.einsum("tw,ewh->teh", hidden, whole.experts.up).relu()
    outputs = torch.einsum("teh,ehw,te->tw", inner, whole.experts.down, every)
    difference: Tensor = hidden + outputs - targets
    return difference.square().mean()


@torch.no_grad()
def _apart(rank: Rank[Settings], model: Mixture, whole: Mixture) -> float:
    """The largest difference of a weight, as a share of the largest weight."""
    pairs: Any = zip(model.named_parameters(), whole.parameters(), strict=True)
    ends = []
    for (name, parameter), true in pairs:
        part = true.chunk(rank.world_size)[rank.rank] if "experts" in name else true
        ends.append(torch.stack([(local(parameter) - part).abs().max(), part.abs().max()]))
    difference, largest = torch.stack(ends).amax(0)
    return float(difference / largest)


QUESTION = "What do experts on several ranks store, send and compute, and what does imbalance cost?"


class Settings(RunSettings):
    """An expert layer, the tokens of a rank, and what ranks store and send."""

    num_tokens: Count = 256
    width: Count = 64
    hidden: Count = 128
    num_experts: Count = 8
    num_chosen: Count = 2
    skewed_percent: CountOrZero = 0  # of the tokens, which all choose the first experts
    num_steps: Settled = 6
    learning_rate: Factor = 0.1
    equal_parts = (("num_experts", "world_size"),)

    @closed_form
    def num_skewed_tokens(self) -> int:
        """Tokens of a rank that all choose the same experts, which are on the first rank."""
        return self.num_tokens * self.skewed_percent // 100

    @closed_form
    def rows_bytes(self) -> int:
        """Bytes of a rank's rows: each token once for each expert that it chooses."""
        return FLOAT_BYTES * self.num_tokens * self.num_chosen * self.width

    @closed_form
    def experts_bytes(self) -> int:
        """Bytes of the weights of all experts."""
        return FLOAT_BYTES * 2 * self.num_experts * self.width * self.hidden

    @closed_form
    def kept_row_bytes(self) -> int:
        """Bytes that an expert keeps of a row for backward: it, and its hidden features."""
        return FLOAT_BYTES * (self.width + self.hidden)

    @closed_form
    def predicted_bytes(self) -> int:
        """Payload of a step: rows four times, or weights gathered twice and reduced once.

        Source: gshard.
        """
        if self.strategy == "gathered":
            return 3 * self.experts_bytes
        return 4 * self.rows_bytes

    def closed_forms(self) -> dict[str, Setting]:
        """By name: those of the base class, rows on the busiest rank, tokens that send as much."""
        skewed = self.num_skewed_tokens
        num_busiest = self.num_tokens - skewed + skewed * self.world_size
        return {
            **super().closed_forms(),
            "num_busiest_rows": num_busiest * self.num_chosen,
            # Rows travel four times, and FSDP sends three times what the experts take.
            "num_threshold_tokens": 3 * 2 * self.num_experts * self.hidden / (4 * self.num_chosen),
        }


STRATEGIES = {"sent": sent, "routed": sent, "gathered": gathered}
run = partial(Declaration, world_size=4, only_on_cpu=True)
RUNS = {
    "routed": run("routed", settings=Settings()),
    "even": run("sent", settings=Settings()),
    "skewed_25": run("sent", settings=Settings(skewed_percent=25), full=True),
    "skewed_50": run("sent", settings=Settings(skewed_percent=50)),
    "many_tokens": run("sent", settings=Settings(num_tokens=1024), full=True),
    "gathered": run("gathered", settings=Settings()),
    "gathered_many_tokens": run("gathered", settings=Settings(num_tokens=1024), full=True),
}
TRIED_WITH = {"*": {"num_steps": 4, "num_tokens": 64}}
