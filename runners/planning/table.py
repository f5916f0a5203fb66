"""Simulated layouts on a cluster: which fit, best first, as a table and as JSON. No torch.

In: answers, the memory of a device, and the cluster. Out: a `Layout` of each answer that has ranks.
`runners.traces.device_memory` says which of them fit; the law of time orders them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runners.planning.answer import Answer
from runners.planning.law_of_time import Bounds, Cluster
from runners.traces import device_memory

GIB = 2**30
NEARLY = 0.01  # layouts that differ by a smaller share are equal
TIGHT = 0.95  # of a device's memory: what needs more of it leaves little
_VERDICTS = ("fits", "marginal", "no")
_HEAD = (
    f"{'':<9}{'layout':<44}{'needs':>8}{'params':>8}{'grads':>8}{'optim':>8}{'activ':>8}{'bufs':>8}"
    f"{'at least':>12}{'at most':>12}  decided by"
)
_UNITS = (
    f"{'':<53}" + "sizes in GiB, of the fullest rank; needs: "
    f"{1 + device_memory.ERROR:g} × reserved, {device_memory.OUTSIDE_SAYS}"
)


def needs(answer: Answer) -> int:
    """Memory of a device that each rank of a strategy needs to fit."""
    num = answer.question.num_microbatches
    return max(
        device_memory.needed_bytes(one.reserved_bytes, one.num_communicators(num))
        for one in answer.ranks
    )


def verdict(answer: Answer, memory_bytes: float) -> device_memory.Verdict:
    """Whether a strategy fits a device; one without ranks does not."""
    if not answer.ranks:
        return "no"
    least = max(device_memory.least_bytes(one.allocated_bytes) for one in answer.ranks)
    return device_memory.verdict(memory_bytes, needs(answer), least)


@dataclass(frozen=True)
class Layout:
    """A simulated layout on a cluster."""

    answer: Answer
    bounds: Bounds
    needed_bytes: int
    verdict: device_memory.Verdict

    @property
    def strategy(self) -> str:
        """The name of its strategy."""
        return self.answer.question.strategy.name

    @property
    def name(self) -> str:
        """The strategy, with the settings that the search chose."""
        training = self.answer.question.training
        words = [self.strategy, f"microbatch {training.microbatch}"]
        if training.checkpointing != "none":
            words.append(f"checkpointing {training.checkpointing}")
        return ", ".join(words)

    @property
    def key(self) -> tuple[int, float, float, int]:
        """Layouts in order: bounds are compared by three digits."""
        at_least, at_most = (float(f"{x:.3g}") for x in (self.bounds.at_least, self.bounds.at_most))
        return _VERDICTS.index(self.verdict), at_least, at_most, self.needed_bytes

    def dominates(self, other: Layout, *, is_memory_free: bool = False) -> bool:
        """Whether it costs no more in anything, and less in something, on the same cluster.

        What they cost is memory, the time of sending over each tier of links, and both bounds.
        """
        names = ("within", "between", "at_least", "at_most")
        pairs = [(getattr(self.bounds, name), getattr(other.bounds, name)) for name in names]
        if not is_memory_free:
            pairs.append((self.needed_bytes, other.needed_bytes))
        is_less = any(mine < (1 - NEARLY) * its for mine, its in pairs)
        return is_less and all(mine <= its for mine, its in pairs)

    def is_tight(self, memory_bytes: float) -> bool:
        """Whether it leaves so little of a device that a first try may well fail."""
        return self.needed_bytes > TIGHT * memory_bytes

    def document(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            **self.answer.model_dump(mode="json"),
            "verdict": self.verdict,
            "needed_bytes": self.needed_bytes,
            "seconds": self.bounds.document(),
        }


def ordered(answers: Sequence[Answer], cluster: Cluster, memory_bytes: float) -> list[Layout]:
    """Every layout that was simulated, best first."""
    found = (layout(one, cluster, memory_bytes) for one in answers if one.ranks)
    return sorted(found, key=lambda one: one.key)


def layout(answer: Answer, cluster: Cluster, memory_bytes: float) -> Layout:
    """One that was simulated, on a cluster."""
    bounds, fits = answer.bounds(cluster), verdict(answer, memory_bytes)
    return Layout(answer, bounds, needs(answer), fits)


def layouts(answers: Sequence[Answer], cluster: Cluster, memory_bytes: float) -> list[Layout]:
    """What fits, best first."""
    return [one for one in ordered(answers, cluster, memory_bytes) if one.verdict == "fits"]


def lines(found: Sequence[Layout]) -> list[str]:
    """The table: memory by class, and both bounds."""
    return [_HEAD, _UNITS, *map(_line, found)]


def _line(one: Layout) -> str:
    held = max(one.answer.ranks, key=lambda rank: rank.reserved_bytes).at_peak
    columns = [one.needed_bytes, held.parameters_bytes, held.gradients_bytes, held.optimizer_bytes]
    columns += [held.activations_bytes, held.buckets_bytes + held.buffers_bytes]
    sizes = "".join(f"{size / GIB:8.2f}" for size in columns)
    times = f"{one.bounds.at_least:10.3g} s{one.bounds.at_most:10.3g} s"
    return f"{one.verdict:<9}{one.name:<44}{sizes}{times}  {one.bounds.decides}"
