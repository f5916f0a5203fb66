"""What really happens when ranks do not make the same calls, and what ends it.

Two ranks, and one mistake in each run: another order of collectives, a step that one rank skips, a
shape that differs, fewer batches on one rank, a tensor changed while it is on its way. Some wait
until a time-out of their group's own, some die, and some end well with wrong sums. Who waits for
whom is found in the flight recorder. Beside each stands its repair.

    python -m runners run hangs
"""

from __future__ import annotations

from typing import Literal

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, CountOrZero, Factor, RunSettings
from runners.traces.records import Death
from runners.traces.schema import Status

QUESTION = (
    "When ranks do not make the same calls, what happens, which ranks wait, and what ends the wait?"
)

# A mistake is ended soon; a repaired run needs no end, and must not meet one on a busy machine.
SOON_SECONDS, LATE_SECONDS = 1, 20
Pair = tuple[Count, Count]  # of each rank


class Settings(RunSettings):
    """Every group gives up after a while."""

    timeout_seconds: Count = LATE_SECONDS


class Ordered(Settings):
    """Two collectives; the second rank calls them in this order."""

    num_values: Count = 1000
    second_operation: Literal["broadcast", "all_reduce"] = "broadcast"
    order: Literal["same", "swapped"] = "same"
    checks_calls: bool = False


class Stepped(Settings):
    """A sum a step; the second rank has nothing to give in the bad one."""

    num_values: Count = 1000
    num_steps: Count = 8
    bad_step: CountOrZero = 2
    asks_first: bool = False


class Summed(Settings):
    """A sum of as many elements on each rank."""

    num_elements: Pair


class Shaped(Settings):
    """A sum of tables; `num_columns` is of the first rank's."""

    num_rows: Pair
    num_columns: Count = 6

    def check(self) -> None:
        """Refuse tables that cannot have as many elements."""
        first, second = self.num_rows
        if first * self.num_columns % second:
            raise ValueError(
                f"{first} rows of num_columns {self.num_columns} do not go into {second} rows"
            )


class Uneven(Settings):
    """Replicas with as many batches each."""

    num_batches: Pair = (6, 4)
    width: Count = 32
    learning_rate: Factor = 0.01
    joins: bool = False


class InFlight(Settings):
    """A sum whose tensor the first rank changes."""

    num_values: Count = 100000
    waits_first: bool = False


def _plan(
    strategy: str,
    settings: Settings,
    expected: Status = "completed",
    expected_death: Death | None = None,
) -> RunPlan[Settings]:
    ends_soon = expected == "deadlocked"
    return RunPlan(
        strategy,
        2,
        settings.changed({"timeout_seconds": SOON_SECONDS}) if ends_soon else settings,
        expected=expected,
        expected_death=expected_death,
        passes=("timed",),
        needs_group=False,  # the flight recorder has to be on before the first group is made
        has_timeline=False,
        only_on_cpu=True,  # what follows a mistake is the backend's own affair
    )


# gloo aborts the process that receives more than it has memory for.
_ABORTS = Death(rank=0, phase="collective", signal="SIGABRT")

RUNS = {
    "order_swapped": _plan("ordered", Ordered(order="swapped"), "deadlocked"),
    "order_swapped_alike": _plan(
        "ordered", Ordered(order="swapped", second_operation="all_reduce")
    ),
    "order_swapped_checked": _plan(
        "ordered", Ordered(order="swapped", checks_calls=True), "failed"
    ),
    "order_same": _plan("ordered", Ordered()),
    "step_skipped": _plan("stepped", Stepped(), "deadlocked"),
    "step_agreed": _plan("stepped", Stepped(asks_first=True)),
    "lengths_differ": _plan("summed", Summed(num_elements=(1000, 1001)), "died", _ABORTS),
    "lengths_same": _plan("summed", Summed(num_elements=(1000, 1000))),
    "shapes_differ": _plan("shaped", Shaped(num_rows=(2, 3))),
    "shapes_same": _plan("shaped", Shaped(num_rows=(2, 2))),
    "batches_uneven": _plan("uneven", Uneven(), "deadlocked"),
    "batches_joined": _plan("uneven", Uneven(joins=True)),
    "changed_in_flight": _plan("in_flight", InFlight()),
    "changed_after_wait": _plan("in_flight", InFlight(waits_first=True)),
}
