"""The index of claims: what each says, where it stands, and its verdicts.

In: every claim by experiment. Out: the claims as a script of their own, `assets/all-claims.js`,
which the page loads when a reader types something.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from generator.content.shelf import page_of
from generator.content.typesetting import plain
from generator.evidence.folio import Folio
from generator.evidence.provenance import PageText
from generator.pages.views.claims import css_of
from generator.pages.views.proof import names_of, outcomes_of, repeated

PLACE = "assets/all-claims.js"
Said = tuple[tuple[str, str], ...]  # words and class of each verdict


def index(by_experiment: Mapping[str, Sequence[str]], folio: Folio) -> tuple[int, str]:
    """How many claims there are, and where the script is that holds them.

    The script calls claims.js with three lists: the experiments (name and page), the verdicts, and
    the claims. A claim gives its places in the first two, its id and its sentence.
    """
    experiments = [[name.replace("_", " "), page_of(name)] for name in by_experiment]
    says = {name: folio.book.claims[name].says for of in by_experiment.values() for name in of}
    says = {name: plain(PageText(folio.evidence, 0).line(one)) for name, one in says.items()}
    alike = repeated(says.values())
    verdicts: dict[Said, int] = {}
    claims = []
    for place, names in enumerate(by_experiment.values()):
        for name in names:
            on = verdicts.setdefault(_said(name, folio), len(verdicts))
            runs = ", ".join(names_of(folio.outcomes[name]))
            is_told_apart = runs and says[name] in alike
            claims.append([place, on, name, says[name] + (f" ({runs})" if is_told_apart else "")])
    text = json.dumps([experiments, list(verdicts), claims], separators=(",", ":"))
    folio.assets[PLACE] = f"proofbook.claims({text});\n".encode()
    return len(claims), PLACE


def _said(name: str, folio: Folio) -> Said:
    """Each verdict of a claim; where machines disagree, with those that agree about it."""
    machines: dict[tuple[str, str], list[str]] = {}
    outcomes = list(outcomes_of(name, folio))
    for outcome, machine, *_ in outcomes:
        verdict = folio.ui["verdicts"][outcome.verdict], css_of(outcome)
        machines.setdefault(verdict, []).append(machine)
    if len(machines) == 1:
        return tuple(machines)
    said = [(f"{words}: {', '.join(on)}", css) for (words, css), on in machines.items()]
    if any(differs for *_, differs in outcomes):
        said.append((folio.ui["evidence"]["differs"], "pb-differs"))
    return tuple(said)
