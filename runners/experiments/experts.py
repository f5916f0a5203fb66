"""An expert layer on four ranks: tokens travel to experts, or the weights of experts to tokens.

Every rank has tokens of its own. `sent` stores some experts on each rank and sends it the tokens
that its experts are for; `gathered` shards all experts by FSDP and gathers them to compute. A
router chooses the experts, or the place of a token does, as benchmarks of throughput have it.

    python -m runners run experts
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from proofbook.runners.api import (
    Count,
    CountOrZero,
    Declaration,
    Factor,
    RunSettings,
    Setting,
    Settled,
)
from proofbook.runners.closed_forms.shape import FLOAT_BYTES
from proofbook.runners.training.rank import NUM_METERED_STEPS, AxisMeter, Rank


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
        self.router = nn.Linear(settings.width, settings.num_experts, bias=False)
        self.settings, self.size = settings, size
        self.experts = Experts(settings, settings.num_experts // size)
        source = torch.Generator().manual_seed(settings.seed)
        with torch.no_grad():  # all ranks draw the whole model, and each takes its part
            for name, parameter in self.named_parameters():
                is_part = "experts" in name
                shape = (settings.num_experts, *parameter.shape[1:]) if is_part else parameter.shape
                whole = torch.randn(shape, generator=source) / settings.width**0.5
                parameter.copy_(whole.chunk(size)[rank] if is_part else whole)

    def forward(self, tokens: Tensor) -> Tensor:
        """(tokens, width) → the same; remembers how many rows it received."""
        hidden = self.below(tokens)
        shares, chosen, _ = self.route(hidden)
        rows, experts = hidden.repeat_interleave(self.settings.num_chosen, 0), chosen.flatten()
        self.num_received = len(rows)
        outputs = self._sent(rows, experts) if self.size > 1 else self.experts(rows, experts)
        summed: Tensor = hidden + (outputs.unflatten(0, chosen.shape) * shares[..., None]).sum(1)
        return summed

    def route(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(tokens, width) → shares and experts, (tokens, choices) each, and the smallest margin."""
        scores = self.router(tokens).softmax(-1)
        best, order = scores.topk(self.settings.num_chosen + 1)
        is_routed = self.settings.strategy == "routed"
        chosen = order[:, :-1] if is_routed else _experts_by_place(self.settings, len(tokens))
        shares = scores.gather(1, chosen)
        return shares / shares.sum(-1, keepdim=True), chosen, (best[:, -2] - best[:, -1]).min()

    def _sent(self, rows: Tensor, experts: Tensor) -> Tensor:
        """Counts first, then the rows to the ranks of their experts, and the outputs back."""
        counts = experts.bincount(minlength=self.settings.num_experts)
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
            true_loss, margin = _dense_loss(whole, *samples.double().flatten(1, 2))
            true_loss.backward()
            oracle.step()
            oracle.zero_grad()
            margins.append(margin.item())
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


def _dense_loss(whole: Mixture, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of one process, where each token passes all experts and most outputs count 0.

    And by how much the scores of the last chosen expert and the next one differed at least.
    """
    hidden = whole.below(tokens)
    shares, chosen, margin = whole.route(hidden)
    every = torch.zeros(len(tokens), whole.settings.num_experts, dtype=tokens.dtype)
    every = every.scatter(1, chosen, shares)
    inner = torch.einsum("tw,ewh->teh", hidden, whole.experts.up).relu()
    outputs = torch.einsum("teh,ehw,te->tw", inner, whole.experts.down, every)
    return (hidden + outputs - targets).square().mean(), margin


@torch.no_grad()
def _apart(rank: Rank[Settings], model: Mixture, whole: Mixture) -> float:
    """The largest difference of a weight, as a share of the largest weight."""
    true = {
        name: weight.chunk(rank.world_size)[rank.rank] if "experts" in name else weight
        for name, weight in whole.named_parameters()
    }
    apart = max((own - true[name]).abs().max().item() for name, own in model.named_parameters())
    return apart / max(weight.abs().max().item() for weight in true.values())


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

    @property
    def num_skewed_tokens(self) -> int:
        """Tokens of a rank that all choose the same experts, which are on the first rank."""
        return self.num_tokens * self.skewed_percent // 100

    def closed_forms(self) -> dict[str, Setting]:
        """By name: bytes of a rank's rows, of all experts, of a step's payload; and rows, tokens.

        A row is a token for one of its experts, which keeps it and its hidden features for
        backward. Rows travel four times; weights are gathered twice and reduced once. Fewer tokens
        than the threshold are fewer bytes than the experts. Source: gshard.
        """
        skewed = self.num_skewed_tokens
        rows_bytes = FLOAT_BYTES * self.num_tokens * self.num_chosen * self.width
        experts_bytes = FLOAT_BYTES * 2 * self.num_experts * self.width * self.hidden
        num_busiest = self.num_tokens - skewed + skewed * self.world_size
        return {
            "num_skewed_tokens": skewed,
            "rows_bytes": rows_bytes,
            "experts_bytes": experts_bytes,
            "kept_row_bytes": FLOAT_BYTES * (self.width + self.hidden),
            "predicted_bytes": 3 * experts_bytes if self.strategy == "gathered" else 4 * rows_bytes,
            "num_busiest_rows": num_busiest * self.num_chosen,
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
