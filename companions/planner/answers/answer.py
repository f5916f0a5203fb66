"""The answer of a plan for a strategy, rank by rank; and layouts on a cluster. No torch.

Bytes are tensor bytes, as the memory meter counts them; `reserved_bytes` is what CUDA's caching
allocator would hold for the same allocations. Since each row of a grid is the answer that it was,
pages and the command share one choice. On a cluster, an answer with ranks is a `Layout`:
`device_memory` says which of them fit, and a rule orders them (`order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proofbook.companions.planner.answers import device_memory
from proofbook.companions.planner.answers.architecture import Architecture
from proofbook.companions.planner.answers.law_of_time import Bounds, Cluster, bounds
from proofbook.companions.planner.answers.order import Priority, priority
from proofbook.companions.planner.answers.plan_grid import (
    Grid,
    GridRank,
    GridRow,
    GridState,
    named_rows,
)
from proofbook.companions.planner.answers.question import (
    PlannedModel,
    Question,
    TrainingSettings,
    strategy_of,
)
from proofbook.runners.closed_forms.steps import pipelined_work
from proofbook.runners.core.trace.schema import Record

GIB = 2**30
# By so much less of what is no state was allocated than closed forms have reserved, at the most, on
# any row of published_measurements.yml: without FSDP, and with it, whose streams share no blocks.
FREE, FREE_OF_FSDP = 0.22, 0.35
NEARLY = 0.01  # layouts that differ by a smaller share are equal
_VERDICTS = ("fits", "marginal", "no")
_TIERS = ("computing", "within", "between")
_HEAD = (
    f"{'needs':>8}{'params':>8}{'grads':>8}{'optim':>8}{'activ':>8}{'bufs':>8}"
    f"{'at least':>12}  decided by"
)
_UNITS = (
    f"{'':<9}" + "sizes in GiB, of the fullest rank; needs: {:g} × reserved, "
    f"{device_memory.OUTSIDE_SAYS}; at least: at the highest rates"
)


class PlanAnswer(Record):
    """A strategy: its ranks, or the reason why it cannot be simulated."""

    question: Question
    reason: str | None = None
    ranks: list[GridRank] = []
    seconds: float  # of the simulation
    is_simulated: bool = True  # else by closed forms

    @property
    def busiest(self) -> GridRank | None:
        """The rank with the highest peak."""
        return max(self.ranks, key=lambda rank: rank.peak_bytes, default=None)

    def bounds(self, cluster: Cluster) -> Bounds:
        """A step's `Bounds`: seconds of computing, with a pipeline's idle time, and by tier."""
        asked, strategy = self.question, self.question.strategy
        if strategy.pipeline == 1:
            return bounds(self.ranks, strategy, cluster)
        layers = [
            sum(len(asked.layers_of(stage)) for stage in strategy.stages_of(rank))
            for rank in range(strategy.pipeline)
        ]
        inner = sum(layers[1:-1]) / layers[1]  # stages, of which the second one was simulated
        units = asked.num_microbatches * strategy.chunks
        pipelined = pipelined_work([rank.flops for rank in self.ranks], inner, units)
        return bounds(self.ranks, strategy, cluster, float(pipelined))


# --- committed rows


def question_of(
    model: PlannedModel, strategy: str, state: GridState, global_batch: int
) -> Question:
    """The `Question` of a row's strategy and state; a PlanError where devices do not form it."""
    settings = state.model_dump(exclude={"devices"})
    training = TrainingSettings.model_validate({**settings, "global_batch": global_batch})
    return Question(model=model, training=training, strategy=strategy_of(strategy, state.devices))


def answer_of(row: GridRow, grid: Grid) -> PlanAnswer:
    """A row of a grid as a `PlanAnswer`: its question made anew, its committed ranks."""
    model = PlannedModel(
        name=grid.preset, architecture=Architecture.model_validate(grid.architecture)
    )
    return PlanAnswer(
        question=question_of(model, row.strategy, row.state, row.global_batch),
        ranks=row.ranks,
        seconds=row.seconds,
    )


def rivals(name: str, grid: Grid) -> dict[str, GridRow]:
    """Rows by run name that do the training of `name`'s row on as many devices, itself included.

    They differ in their strategy, in what they recompute, and in the size of a microbatch.
    """
    by_name, free = named_rows(grid), {"checkpointing": "", "microbatch": 0}
    mine = by_name[name]
    same = mine.state.model_copy(update=free)
    return {
        other: row
        for other, row in by_name.items()
        if row.state.model_copy(update=free) == same and row.global_batch == mine.global_batch
    }


# --- layouts on a cluster


def needs(answer: PlanAnswer) -> int:
    """Bytes of a device's memory with which all ranks fit: the most of their `needed_bytes`."""
    num, error = answer.question.num_microbatches, _error(answer)
    return max(
        device_memory.needed_bytes(rank.reserved_bytes, rank.num_communicators(num), error)
        for rank in answer.ranks
    )


def _error(answer: PlanAnswer) -> float:
    return device_memory.ERROR if answer.is_simulated else device_memory.FORM_ERROR


def least(answer: PlanAnswer) -> int:
    """Bytes below which no rank fits: all blocks of a simulation.

    Of closed forms the states, which are exact, and the rest less the segments that may be free.
    """
    error = FREE_OF_FSDP if answer.question.has_fsdp else FREE
    error = 0.0 if answer.is_simulated else error
    return max(
        device_memory.least_bytes(
            rank.allocated_bytes - round(error * rank.at_peak.activations_bytes)
        )
        for rank in answer.ranks
    )


def verdict(answer: PlanAnswer, memory_bytes: float) -> device_memory.Verdict:
    """Whether a strategy fits a device; one without ranks does not."""
    if not answer.ranks:
        return "no"
    return device_memory.verdict(memory_bytes, needs(answer), least(answer))


@dataclass(frozen=True)
class Layout:
    """A layout on a cluster, simulated or by closed forms."""

    answer: PlanAnswer
    cluster: Cluster
    bounds: Bounds
    needed_bytes: int
    verdict: device_memory.Verdict

    @property
    def strategy(self) -> str:
        """The name of its strategy."""
        return self.answer.question.strategy.name

    @property
    def name(self) -> str:
        """Its strategy, microbatch and, unless it is none, checkpointing, in words with commas."""
        training = self.answer.question.training
        words = [self.strategy, f"microbatch {training.microbatch}"]
        if training.checkpointing != "none":
            words.append(f"checkpointing {training.checkpointing}")
        return ", ".join(words)

    @property
    def is_hidden(self) -> bool:
        """Whether computing takes as long as all that ranks send, which it can hide."""
        return self.bounds.sending <= self.bounds.computing

    @property
    def priority(self) -> Priority:
        """Its key in the order of the rule; the smallest is tried first."""
        sending = self.bounds.sending / self.bounds.computing if self.bounds.computing else 0.0
        return priority(self.answer.question, self.cluster.per_node, sending=sending)

    def dominates(self, other: Layout, *, is_memory_free: bool = False) -> bool:
        """Whether no cost is higher and any is lower; if computing bounds both, by the rule too.

        Costs are memory (unless free), computing, and sending over each tier; nearly equal is not
        lower. Where computing bounds both, it comes earlier by the rule, or as early at lower cost.
        """
        pairs = [(getattr(self.bounds, tier), getattr(other.bounds, tier)) for tier in _TIERS]
        if not is_memory_free:
            pairs.append((self.needed_bytes, other.needed_bytes))
        if any(own > its for own, its in pairs):
            return False
        is_less = any(own < (1 - NEARLY) * its for own, its in pairs)
        if {self.bounds.bottleneck, other.bounds.bottleneck} == {"computing"}:
            own, its = self.priority, other.priority
            return own < its or (is_less and own == its)
        return is_less

    def document(self) -> dict[str, Any]:
        """A dictionary for JSON: the answer, its verdict, bytes needed, seconds of its bounds."""
        law = self.bounds
        return {
            **self.answer.model_dump(mode="json"),
            "verdict": self.verdict,
            "needed_bytes": self.needed_bytes,
            "seconds_at_full_rates": {
                "at_least": law.at_least,
                **law._asdict(),
            },
        }


def ordered(answers: Sequence[PlanAnswer], cluster: Cluster, memory_bytes: float) -> list[Layout]:
    """Every layout with ranks: what fits first, and in the order of the rule."""
    return sorted(
        (layout_of(answer, cluster, memory_bytes) for answer in answers if answer.ranks),
        key=lambda a: (_VERDICTS.index(a.verdict), a.priority, a.needed_bytes, a.name),
    )


def layout_of(answer: PlanAnswer, cluster: Cluster, memory_bytes: float) -> Layout:
    """The layout of an answer on a cluster of devices with this memory."""
    fits = verdict(answer, memory_bytes)
    return Layout(answer, cluster, answer.bounds(cluster), needs(answer), fits)


def layouts(answers: Sequence[PlanAnswer], cluster: Cluster, memory_bytes: float) -> list[Layout]:
    """The layouts that fit the devices, in the order of the rule."""
    return [a for a in ordered(answers, cluster, memory_bytes) if a.verdict == "fits"]


def table_lines(layouts: Sequence[Layout]) -> list[str]:
    """Lines of text, a head of two, then each layout's verdict, GiB by class and bound."""
    width = max((len(layout.name) for layout in layouts), default=0) + 2
    lines = [
        f"{'':<9}{'layout':<{width}}{_HEAD}",
        *(_UNITS.format(1 + _error(a.answer)) for a in layouts[:1]),
    ]
    for layout in layouts:
        columns = [layout.needed_bytes, *_bytes_by_class(layout).values()]
        sizes = "".join(f"{size / GIB:8.2f}" for size in columns)
        least, decided_by = f"{layout.bounds.at_least:10.3g} s", layout.bounds.bottleneck
        lines.append(f"{layout.verdict:<9}{layout.name:<{width}}{sizes}{least}  {decided_by}")
    return lines


def _bytes_by_class(layout: Layout) -> dict[str, int]:
    """Bytes of each class at the peak of the fullest rank."""
    held = max(layout.answer.ranks, key=lambda rank: rank.reserved_bytes).at_peak
    return {
        "parameters": held.parameters_bytes,
        "gradients": held.gradients_bytes,
        "optimizer": held.optimizer_bytes,
        "activations": held.activations_bytes,
        "buffers": held.buckets_bytes + held.buffers_bytes,
    }


def days_of(answer: PlanAnswer, tokens: float, step_seconds: float) -> float:
    """Days of a training of so many tokens, by the seconds of a step."""
    training = answer.question.training
    return tokens / (training.global_batch * training.sequence) * step_seconds / 86_400


def duration(layout: Layout, tokens: float) -> str:
    """How long a layout takes at least for so many tokens, in words."""
    num, days = layout.cluster.num_devices, days_of(layout.answer, tokens, layout.bounds.at_least)
    time = f"{days:,.1f} days" if days >= 1 else f"{24 * days:.2g} hours"
    of_all = f" ({days * num:,.4g} device-days)" if num > 1 else ""
    takes = "take" if layout.verdict == "fits" else "would take"
    return (
        f"{tokens:.4g} tokens {takes} no less than {time} on {num} device{'s' * (num > 1)}"
        f"{of_all} by {layout.name}, at the highest rates; how much longer is not predicted"
    )


def memory_words(layout: Layout) -> str:
    """The contents of the fullest rank's memory in words, each with its GiB."""
    held = _bytes_by_class(layout)
    held["margin, allocator and libraries"] = layout.needed_bytes - sum(held.values())
    return ", ".join(f"{what} {size / GIB:.1f}" for what, size in held.items() if size / GIB > 0.05)
