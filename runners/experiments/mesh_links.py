"""Two ways of placing an axis on two tiers of links, and two ways of sending tokens to experts.

Each computation lasts a set time. `axis_links` trains on a square of ranks, two on each node, with
faster links within a node: tensor ranks share a node, or replicas do. `dispatch` sends the tokens
of two microbatches to experts and back, one after the other, or one while the other computes.

    python -m runners run axis_links dispatch
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import torch
import torch.distributed as dist

from proofbook.runners.api import Count, CountOrZero, Declaration, RunSettings, Setting, Settled
from proofbook.runners.closed_forms.shape import FLOAT_BYTES
from proofbook.runners.closed_forms.steps import share_bytes
from proofbook.runners.training.rank import Rank, links
from proofbook.runners.training.transfers import join_group

MEGABIT = 1_000_000
SIDE = 2  # ranks of a node, and nodes


def axes(rank: Rank[AxisSettings]) -> None:
    """Sum the activations of each layer over tensor ranks, and gradients over replicas."""
    settings, here = rank.settings, rank.rank
    node = here // SIDE
    mates = [links.address(node * SIDE + place) for place in range(SIDE)]
    links.shape(settings.node_bits_per_second, settings.within_bits_per_second, mates)
    join_group(rank.scratch / "store", here, rank.world_size)
    within = [dist.new_group([0, 1]), dist.new_group([2, 3])][node]
    between = [dist.new_group([0, 2]), dist.new_group([1, 3])][here % SIDE]
    is_within = settings.strategy == "tensor_within"
    tensor, replicas = (within, between) if is_within else (between, within)
    activations = torch.zeros(settings.activation_bytes // FLOAT_BYTES)
    gradients = torch.zeros(settings.gradient_bytes // FLOAT_BYTES)
    for _ in _steps(rank):
        for _ in range(settings.num_layers):
            time.sleep(settings.layer_milliseconds / 1000)
            dist.all_reduce(activations, group=tensor)
        dist.all_reduce(gradients, group=replicas)


def in_turn(rank: Rank[DispatchSettings]) -> None:
    """Dispatch, compute and combine, and then begin with the next microbatch."""
    for _ in _steps(rank):
        for _ in range(rank.settings.num_layers * NUM_MICROBATCHES):
            _attention(rank)
            _wait(_send(rank))
            _experts(rank)
            _wait(_send(rank))


def overlapped(rank: Rank[DispatchSettings]) -> None:
    """Whenever the tokens of a microbatch are on their way, compute with those of the other."""
    for _ in _steps(rank):
        combining: list[dist.Work | None] = []
        for _ in range(rank.settings.num_layers):
            _attention(rank)  # of the first microbatch, while the second one's outputs return
            _wait(combining)
            dispatching = _send(rank)
            _attention(rank)
            _wait(dispatching)
            dispatching = _send(rank)
            _experts(rank)
            _wait(dispatching)
            combining = _send(rank)
            _experts(rank)
            _wait(combining)
            combining = _send(rank)
        _wait(combining)


def _attention(rank: Rank[DispatchSettings]) -> None:
    time.sleep(rank.settings.layer_milliseconds / 1000)


def _experts(rank: Rank[DispatchSettings]) -> None:
    """Compute as long as the rows of the rank's experts take."""
    time.sleep(rank.settings.layer_milliseconds / 1000 * rank.settings.share_of(rank.rank))


def _send(rank: Rank[DispatchSettings]) -> list[dist.Work | None]:
    """A microbatch's rows to all ranks, evenly.

    Receives come first: gloo sends a payload once the receiver is ready, and its `all_to_all` puts
    this notice behind the rank's own payload.
    """
    size, here = rank.world_size, rank.rank
    parts = torch.zeros(size, rank.settings.rows_bytes // FLOAT_BYTES // size)
    others = [(here + step) % size for step in range(1, size)]
    calls = [dist.irecv(torch.empty_like(parts[0]), other) for other in reversed(others)]
    return calls + [dist.isend(parts[other], other) for other in others]


def _wait(calls: list[dist.Work | None]) -> None:
    for call in calls:
        if call is not None:
            call.wait()


def _steps(rank: Rank[AxisSettings] | Rank[DispatchSettings]) -> Iterator[int]:
    rank.count_samples(rank.settings.num_steps)
    yield from rank.steps(rank.settings.num_steps)


class AxisSettings(RunSettings):
    """Layers and gradients of a paced step, and the links of two nodes."""

    activation_bytes: Count = 1 << 19  # of each layer, summed over tensor ranks
    gradient_bytes: Count = 1 << 20  # of a rank, summed over replicas
    num_layers: Count = 4
    layer_milliseconds: Count = 10
    within_bits_per_second: Count = 800 * MEGABIT
    node_bits_per_second: Count = 100 * MEGABIT  # of each rank, to the other node
    num_steps: Settled = 8

    def closed_forms(self) -> dict[str, Setting]:
        """By name: seconds of a step's parts; each of two ranks sends a payload once.

        Source: patarasuk-yuan.
        """
        within, between = 8 / self.within_bits_per_second, 8 / self.node_bits_per_second
        is_within = self.strategy == "tensor_within"
        tensor, replicas = (within, between) if is_within else (between, within)
        return {
            "computing_seconds": self.num_layers * self.layer_milliseconds / 1000,
            "tensor_seconds": self.num_layers * self.activation_bytes * tensor,
            "replica_seconds": self.gradient_bytes * replicas,
        }


NUM_MICROBATCHES = 2


class DispatchSettings(RunSettings):
    """Layers of attention and experts of a set duration, and the rows that a link passes."""

    rows_bytes: Count = 1 << 21  # of a microbatch
    num_layers: Count = 2
    layer_milliseconds: Count = 40  # of attention, and of experts with an even share of the rows
    skewed_percent: CountOrZero = 0  # of the rows, which go to rank 0 beside its even share
    link_bits_per_second: Count = 400 * MEGABIT
    num_steps: Settled = 8

    def share_of(self, rank: int) -> float:
        """Rows on a rank, as a multiple of an even share; the first rank is the busiest."""
        return 1 - self.skewed_percent / 100 * (1 if rank else 1 - self.world_size)

    def closed_forms(self) -> dict[str, Setting]:
        """By name: seconds of computing on the busiest rank, and of sending.

        Source: thakur-collectives.
        """
        passes = self.num_layers * NUM_MICROBATCHES
        of_layer = share_bytes(self.rows_bytes, self.world_size) * 8 / self.link_bits_per_second
        return {
            "computing_seconds": passes * self.layer_milliseconds / 1000 * (1 + self.share_of(0)),
            "sending_seconds": float(2 * passes * of_layer),
        }


paced = partial(Declaration, passes=("timed",), nature="paced", only_on_cpu=True, own_network=True)
FEW_TOKENS = AxisSettings(activation_bytes=1 << 16)


class _AxisLinks:
    QUESTION = "Which axis of a mesh belongs on the fast links?"
    STRATEGIES = {"tensor_within": axes, "tensor_between": axes}
    RUNS = {
        f"{strategy}{suffix}": paced(strategy, 4, settings, needs_group=False)
        for suffix, settings in (("", AxisSettings()), ("_few_tokens", FEW_TOKENS))
        for strategy in ("tensor_within", "tensor_between")
    }
    TRIED_WITH = {"*": {"num_steps": 4, "activation_bytes": 1 << 16, "gradient_bytes": 1 << 16}}


class _Dispatch:
    QUESTION = "Can tokens travel to their experts while others compute?"
    RUNS = {
        "in_turn": paced("in_turn", 4, DispatchSettings()),
        "overlapped": paced("overlapped", 4, DispatchSettings()),
        "skewed": paced("in_turn", 4, DispatchSettings(skewed_percent=50), full=True),
    }
    TRIED_WITH = {"*": {"num_steps": 4, "rows_bytes": 1 << 16}}


EXPERIMENTS = {"axis_links": _AxisLinks, "dispatch": _Dispatch}
