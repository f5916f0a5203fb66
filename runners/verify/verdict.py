"""What the tool says in the end: findings, what was compared, and what was not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Term = tuple[int, int | None]  # a rank, and one of its backward passes (None: all of them)


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
    factors: dict[Term, float] | None
    steps: dict[str, Error] = field(default_factory=dict)  # of what the optimizer added


@dataclass
class Finding:
    """Something that one process would do otherwise."""

    cause: str  # a key of the table of causes
    says: str  # what was seen
    place: str = ""  # the script's line
    parameter: str = ""  # the first that differs, and how many more
    rank: int | None = None  # the first rank
    step: int | None = None  # the number of the update, from 1; None where it concerns none
    detail: str = ""  # more, in one line


@dataclass
class Verdict:
    """All that is said."""

    findings: list[Finding] = field(default_factory=list)  # most certain first
    not_compared: list[str] = field(default_factory=list)  # what was not, and why
    lasting: set[str] = field(default_factory=set)  # what of that a run as one process leaves open
    notes: list[str] = field(default_factory=list)
    weights: str = ""  # the line of the weights
    numbers: dict[str, int] = field(default_factory=dict)  # of parameters and updates, for `--json`
    strips: list[Strip] = field(default_factory=list)  # of each update that was compared

    def find(self, finding: Finding) -> None:
        """Add a finding, once for each cause."""
        if all(one.cause != finding.cause for one in self.findings):
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
        self.not_compared = [one for one in self.not_compared if one in self.lasting]

    @property
    def exit_code(self) -> int:
        """0 all agrees, 1 findings, 3 something was not compared."""
        return 1 if self.findings else 3 if self.not_compared else 0
