"""The index of claims: what each says, where it stands, and by what it may be chosen.

In: every claim by experiment, and the topics of each. Out: the claims as a script of their own,
`assets/all-claims.js`, which the page loads when a reader chooses something or follows a link to a
claim.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from generator.content.shelf import page_of
from generator.content.typesetting import plain
from generator.evidence.folio import Folio
from generator.evidence.provenance import PageText
from generator.pages.views import sift
from generator.pages.views.claims import css_of
from generator.pages.views.proof import names_of, outcomes_of

PLACE = "assets/all-claims.js"
Said = tuple[tuple[str, str, str, str], ...]  # places, machines, words and class of each verdict


def index(
    by_experiment: Mapping[str, Sequence[str]],
    topics: Mapping[str, tuple[str, ...]],
    folio: Folio,
) -> tuple[int, str]:
    """How many claims there are, and where the script is that holds them.

    The script calls claims.js with four lists: the experiments (name and page), the marks, the
    verdicts by machine, and the claims. A claim gives its places in the first three, its id and its
    sentence.
    """
    experiments = [[name.replace("_", " "), page_of(name)] for name in by_experiment]
    says = {
        name: plain(PageText(folio.evidence, 0).line(one.says))
        for name, one in folio.book.claims.items()
    }
    alike = Counter(says.values())
    marks: dict[str, int] = {}
    verdicts: dict[Said, int] = {}
    claims = []
    for place, name in _placed(by_experiment):
        of_claim, said = _judged(name, topics.get(name, ()), folio)
        at = marks.setdefault(of_claim, len(marks)), verdicts.setdefault(said, len(verdicts))
        runs = ", ".join(names_of(folio.outcomes[name]))
        is_told_apart = runs and alike[says[name]] > 1
        sentence = f"{says[name]} ({runs})" if is_told_apart else says[name]
        claims.append([place, *at, name, sentence])
    text = json.dumps([experiments, list(marks), list(verdicts), claims], separators=(",", ":"))
    folio.assets[PLACE] = f"proofbook.claims({text});\n".encode()
    return len(claims), PLACE


def _placed(by_experiment: Mapping[str, Sequence[str]]) -> Iterator[tuple[int, str]]:
    for place, claims in enumerate(by_experiment.values()):
        yield from ((place, name) for name in claims)


def _judged(name: str, topics: tuple[str, ...], folio: Folio) -> tuple[str, Said]:
    """The marks of a claim, and each verdict with the machines that agree about it."""
    by_verdict: dict[tuple[str, str], list[tuple[str, str]]] = {}
    differs = False
    for outcome, machine, place, _, is_other in outcomes_of(name, folio):
        verdict = folio.ui["verdicts"][outcome.verdict], css_of(outcome)
        by_verdict.setdefault(verdict, []).append((sift.machine_mark(place), machine))
        differs = differs or is_other
    judged = [
        (mark, css.removeprefix("pb-")) for (_, css), of in by_verdict.items() for mark, _ in of
    ]
    kind = folio.book.claims[name].kind
    said = (
        (" ".join(mark for mark, _ in of), ", ".join(machine for _, machine in of), words, css)
        for (words, css), of in by_verdict.items()
    )
    return sift.marks(topics, kind, judged, differs=differs), tuple(said)
