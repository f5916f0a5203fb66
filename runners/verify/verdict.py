"""What the tool says in the end: findings, what was compared, and what was not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Error(NamedTuple):
    """How far a tensor is from that of one process, and what rounding allows; over its norm."""

    error: float
    allowed: float

    @property
    def agrees(self) -> bool:
        """Whether it is no more than rounding; a tensor that is not finite does not agree."""
        return self.error <= self.allowed


@dataclass
class Strip:
    """What an update of a module differs by, tensor by tensor; updates count from 1."""

    module: str
    update: int
    gradients: dict[str, Error]  # up to `factors`
    factors: dict[tuple[int, int | None], float] | None  # by rank and backward pass
    steps: dict[str, Error] = field(default_factory=dict)  # of what the optimizer added


@dataclass
class Finding:
    """Something that one process would do otherwise.

    Attributes:
        cause: a key of the table of causes.
        says: what was seen.
        place: the script's line.
        parameter: the first that differs, and how many more.
        rank: the first rank.
        step: the number of the update, from 1; None where it concerns no update.
        detail: more, in one line.
    """

    cause: str
    says: str
    place: str = ""
    parameter: str = ""
    rank: int | None = None
    step: int | None = None
    detail: str = ""


@dataclass
class Verdict:
    """All that is said.

    Attributes:
        findings: most certain first.
        not_compared: what was not, and why.
        lasting: what of that a run as one process leaves open.
        weights: the line of the weights.
        numbers: for `--json`: how many parameters were compared, and of how many.
        strips: of each update that was compared.
    """

    findings: list[Finding] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    lasting: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    weights: str = ""
    numbers: dict[str, int] = field(default_factory=dict)
    strips: list[Strip] = field(default_factory=list)

    def find(self, finding: Finding) -> None:
        """Add a finding, once for each cause, place and rank."""
        same = [one for one in self.findings if one.cause == finding.cause]
        if not same:
            self.findings.append(finding)

    def skip(self, what: str, *, is_lasting: bool = False) -> None:
        """Say what was not compared, once.

        Args:
            what: and why.
            is_lasting: whether a run as one process leaves it open.
        """
        if what not in self.not_compared:
            self.not_compared.append(what)
        if is_lasting:
            self.lasting.add(what)

    def proven(self, how: str) -> None:
        """What was not compared in parts has been compared as a whole, but for what lasts."""
        others = [one for one in self.not_compared if one not in self.lasting]
        self.notes.append("; its parts were not all compared: ".join([how, *others[:1]]))
        self.not_compared = [one for one in self.not_compared if one not in others]

    @property
    def exit_code(self) -> int:
        """0 all agrees, 1 findings, 3 something was not compared."""
        if self.findings:
            return 1
        return 3 if self.not_compared else 0
