"""The declaration and the recorder of experiments without ranks. No torch.

    from proofbook.runners.plain.experiment import Plain, Recorder

    def insertion_sort(run: Recorder[Settings]) -> None:
        ...
        run.measure("num_comparisons", num_comparisons, unit="comparisons")

    RUNS = {"sorted": Plain("insertion_sort", settings=Settings(order="sorted"))}

The file has a `QUESTION` and its `Settings` like any experiment (`runners/core/declared`). A file
that imports this module needs no torch, unless it imports it itself.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic

from pydantic import ConfigDict, TypeAdapter, ValidationError

from proofbook.runners.core.declared.experiment import Declaration
from proofbook.runners.core.declared.settings import S
from proofbook.runners.core.trace.outcome import RankOutcome
from proofbook.runners.core.trace.schema import Quantity, Repeats, Setting

_SETTING = TypeAdapter[Setting](Setting, config=ConfigDict(allow_inf_nan=False))
_NUMBER = re.compile(r"[-+]?[\d_]*\.?\d+(e[-+]?\d+)?", re.IGNORECASE)  # as a text


@dataclass(frozen=True)
class Plain(Declaration[S]):
    """One run, as declared: `strategy` is the name of a function of the file."""

    needs_group: bool = False
    only_on_cpu: bool = True


class Recorder(Generic[S]):
    """The argument of a run's function: settings, seed (`random` has it too), and a recorder."""

    def __init__(self, settings: S, outcome: RankOutcome) -> None:
        """Record into an outcome."""
        self.settings, self.seed = settings, settings.seed
        self._outcome = outcome

    def measure(
        self, name: str, value: Setting, *, unit: str = "", repeats: Repeats = "rounded"
    ) -> None:
        """Record numbers or words under a name; a page reads `<run>.measures.<name>`.

        The unit is `bytes`, `share`, or what a whole number counts, such as `comparisons`; times go
        to `measure_seconds`. Another run repeats the value `rounded`, or as `clock` where times
        decide. ValueError where a trace cannot hold it, a text stands for a number, or the name is
        taken.
        """
        _check(name, value)
        if name in self._outcome.measures:
            raise ValueError(f"measure {name!r} is there already; give each value its own name")
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and (unit or _NUMBER.fullmatch(text.strip())):
                raise ValueError(
                    f"measure {name!r} holds the text {text!r}; record a number, or a word "
                    "without a unit"
                )
        self._outcome.quantities[name] = Quantity(unit=unit, repeats=repeats)
        self._outcome.measures[name] = value

    def measure_seconds(self, name: str, samples: Iterable[float]) -> None:
        """Record times, raw, in seconds; a page reads them as `<run>.timing.measures.<name>`."""
        _check(name, seconds := [*map(float, samples)])
        self._outcome.measured_seconds.setdefault(name, []).extend(seconds)


def _check(name: str, value: Setting) -> None:
    try:
        _SETTING.validate_python(value, strict=True)
    except ValidationError:
        raise ValueError(
            f"measure {name!r} is {value!r}; a trace holds finite numbers, words and lists of "
            "Python's own types"
        ) from None
