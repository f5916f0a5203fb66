"""One module of a watched script, and what the comparisons of it share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from runners.verify.layout import Layout
from runners.verify.tied_weights import Tie
from runners.verify.verdict import Finding, Verdict

ROUNDINGS = 4  # by how many roundings a tensor may differ; drawn programs differ by at most 1.5


@dataclass
class Case:
    """What is compared."""

    layout: Layout
    layouts: Sequence[Layout]  # of all modules
    verdict: Verdict
    unpreserved: str = ""  # the line of a checkpoint that draws anew
    scaled: dict[int, dict[int, float]] = field(default_factory=dict)  # by update and rank: factors
    # by which stages of a pipeline clip gradients themselves
    ties: Sequence[Tie] = ()  # of weights in all layouts

    @property
    def eps(self) -> float:
        """The step of the coarsest dtype of the module."""
        return max(one.eps for one in self.layout.records.values())

    @property
    def sum_eps(self) -> float:
        """The step of the coarsest dtype in which gradients are kept and added up."""
        return max(one.sum_eps for one in self.layout.records.values())

    def eps_of(self, rank: int, number: int) -> float:
        """The same, of the precision in which a rank's forward passes computed."""
        is_cast = any(one.autocast[0] for one in self.layout.update(rank, number).forwards)
        return max(self.eps, torch.finfo(torch.bfloat16).eps) if is_cast else self.eps

    def skip(self, why: str, *, is_lasting: bool = False) -> None:
        """Say what of this module was not compared, once; see `Verdict.skip`."""
        self.verdict.skip(f"{self.layout.key}: {why}", is_lasting=is_lasting)

    def note(self, what: str) -> None:
        """Say what is no finding, once."""
        said = f"{self.layout.key}: {what}"
        if said not in self.verdict.notes:
            self.verdict.notes.append(said)

    def find(
        self, cause: str, says: str, place: str, names: Sequence[str], rank: int | None,
        step: int | None, detail: str = "",
    ) -> None:  # fmt: skip
        """Add a `Finding`; of `names` the first is shown, and `step` counts updates from 0."""
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        shown = f"{self.layout.key}: {names[0]}{more}" if names else self.layout.key
        at = None if step is None else step + 1
        self.verdict.find(Finding(cause, says, place, shown, rank, at, detail))
