"""The index of claims: what each says, where it stands, and by what it may be chosen.

In: every claim by experiment, and the topics of each. Out: the claims as a script of their own,
`assets/all-claims.js`, which the page loads when a reader chooses something or follows a link to a
claim.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from generator.content.shelf import page_of
from generator.content.typesetting import plain
from generator.evidence.folio import Folio
from generator.evidence.provenance import PageText
from generator.pages import sifting
from generator.pages.views.claims import css_of
from generator.pages.views.proof import names_of, outcomes_of

PLACE = "assets/all-claims.js"


@dataclass(frozen=True)
class Said:
    """The verdict of one machine, or of several that agree: their names, and their marks."""

    machines: str
    places: str
    words: str
    css: str


@dataclass(frozen=True)
class Line:
    """A claim in the index: what it says, as plain text, and each machine's verdict."""

    id: str
    says: str
    runs: str  # which decide it
    marks: str
    said: tuple[Said, ...]


def index(
    by_experiment: Sequence[tuple[str, tuple[str, ...]]],
    topics: Mapping[str, tuple[str, ...]],
    folio: Folio,
) -> tuple[int, str]:
    """How many claims there are, and where the script is that holds them, by experiment."""
    groups = [
        (name, [_line(claim, topics.get(claim, ()), folio) for claim in claims])
        for name, claims in by_experiment
    ]
    alike = Counter(line.says for _, lines in groups for line in lines)
    groups = [
        (name, [_told_apart(line) if alike[line.says] > 1 else line for line in lines])
        for name, lines in groups
    ]
    folio.assets[PLACE] = _packed(groups)
    return sum(len(lines) for _, lines in groups), PLACE


def _told_apart(line: Line) -> Line:
    """A claim whose words another one shares, with the runs that decide it."""
    return replace(line, says=f"{line.says} ({line.runs})") if line.runs else line


def _line(name: str, topics: tuple[str, ...], folio: Folio) -> Line:
    claim = folio.book.claims[name]
    found = list(outcomes_of(name, folio))
    by_verdict: dict[str, list[tuple[str, str]]] = {}
    for outcome, machine, place, _, _ in found:
        by_verdict.setdefault(css_of(outcome), []).append((machine, sifting.machine_mark(place)))
    words = {css_of(outcome): folio.ui["verdicts"][outcome.verdict] for outcome, *_ in found}
    verdicts = [(mark, css.removeprefix("pb-")) for css, of in by_verdict.items() for _, mark in of]
    return Line(
        id=claim.id,
        says=plain(PageText(folio.evidence, 0).line(claim.says)),
        runs=", ".join(names_of(folio.outcomes[name])),
        marks=sifting.marks(
            topics, claim.kind, verdicts, differs=any(differs for *_, differs in found)
        ),
        said=tuple(
            Said(
                ", ".join(name for name, _ in of), " ".join(mark for _, mark in of), words[css], css
            )
            for css, of in by_verdict.items()
        ),
    )


def _packed(groups: Sequence[tuple[str, Sequence[Line]]]) -> bytes:
    """The claims as a script that calls claims.js; what many of them share stands once.

    It has four lists: the experiments (name and page), the marks, the verdicts by machine, and the
    claims. A claim gives its places in the first three, its id and its sentence.
    """
    experiments = [[name.replace("_", " "), page_of(name)] for name, _ in groups]
    marks: dict[str, int] = {}
    said: dict[tuple[Said, ...], int] = {}
    claims = list(_rows(groups, marks, said))
    verdicts = [[[on.places, on.machines, on.words, on.css] for on in one] for one in said]
    text = json.dumps(
        [experiments, list(marks), verdicts, claims], ensure_ascii=True, separators=(",", ":")
    )
    return f"proofbook.claims({text});\n".encode()


def _rows(
    groups: Sequence[tuple[str, Sequence[Line]]],
    marks: dict[str, int],
    said: dict[tuple[Said, ...], int],
) -> Iterator[list[object]]:
    for place, (_, lines) in enumerate(groups):
        for one in lines:
            at = marks.setdefault(one.marks, len(marks)), said.setdefault(one.said, len(said))
            yield [place, *at, one.id, one.says]
