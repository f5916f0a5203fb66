"""Insertion sort: how many comparisons it makes, by the order of its input."""

import random

from proofbook.runners.core.declared.settings import Count, RunSettings, closed_form
from proofbook.runners.plain.experiment import Plain, Recorder


class Settings(RunSettings):
    """A list of the numbers from zero on, in some order."""

    num_values: Count = 64
    order: str = "ascending"

    @closed_form
    def num_pairs(self) -> int:
        """How many pairs of values there are."""
        return self.num_values * (self.num_values - 1) // 2

    def check(self) -> None:
        """Refuse an order that `arranged` does not know."""
        if self.order not in ("ascending", "descending", "shuffled"):
            raise ValueError(f"order is ascending, descending or shuffled, not {self.order}")


def arranged(settings: Settings) -> list[int]:
    """The values in the order of the settings."""
    values = list(range(settings.num_values))
    if settings.order == "shuffled":
        random.shuffle(values)  # the run's seed decides how
    return values[::-1] if settings.order == "descending" else values


def insertion_sort(run: Recorder[Settings]) -> None:
    """Record how many comparisons insertion sort makes on the values that the settings arrange."""
    values = arranged(run.settings)
    num_comparisons = 0
    for end in range(1, len(values)):
        place = end
        while place > 0:
            num_comparisons += 1
            if values[place - 1] <= values[place]:
                break
            values[place - 1], values[place] = values[place], values[place - 1]
            place -= 1
    assert values == sorted(values)
    run.measure("num_comparisons", num_comparisons, unit="comparisons")
    print(f"{len(values)} values, {run.settings.order}: {num_comparisons} comparisons")


QUESTION = "How many comparisons does insertion sort make, and does the order of its input matter?"

RUNS = {
    "ascending": Plain("insertion_sort", settings=Settings()),
    "shuffled": Plain("insertion_sort", settings=Settings(order="shuffled")),
    "descending_16": Plain("insertion_sort", settings=Settings(num_values=16, order="descending")),
    "descending_32": Plain("insertion_sort", settings=Settings(num_values=32, order="descending")),
    "descending": Plain("insertion_sort", settings=Settings(order="descending")),
}
