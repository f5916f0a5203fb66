"""The way to a number, step by step: the law that gives it, and what goes into the law.

In: an item that asks for a number and names a law which predicts this very number. Out: hints, as
Lines, in the order in which one works it out. The last step, the result, is left to the reader: a
hint states the terms of the law by the law's own symbols, and nothing that is printed as the
answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from generator.content.claim import Claim
from generator.content.quiz import Item
from generator.evidence import law_formula
from generator.evidence.evaluation import Evidence
from generator.evidence.value import Value
from generator.items.kinds import Key

_TERMS = {  # the terms of laws as authors write them, by what a run was given
    "world_size": ("ranks", "n"),
    "settings.model_bytes": ("model bytes", "M"),
    "model.bytes": ("model bytes", "M"),
    "settings.root_bytes": ("root",),
    "settings.layer_bytes": ("layer",),
    "model.layers[0].bytes": ("layer",),
    "settings.largest_part_bytes": ("bytes of the largest part",),
    "settings.batch_size": ("batch",),
    "settings.num_microbatches": ("microbatches", "m"),
    "settings.num_chunks": ("v",),
    "settings.activation_bytes": ("a",),
}
_BEHIND_TOTALS = ("settings.model_bytes",)  # of which settings that a law reads may be sums
_GIVEN = re.compile(r"(?P<run>.+?)\.(?P<path>(?:settings|model)\.\S+|world_size)")
_CODE = re.compile(r"`([^`]+)`")


def steps(item: Item, key: Key, evidence: Evidence, words: Mapping[str, str]) -> list[str]:
    """The hints that lead to the answer; none where no law of the item gives it."""
    if key.value is None:
        return []
    for name in item.claims:
        claim, outcome = evidence.book.claims[name], evidence.outcome(name)
        formula = law_formula.shown(claim)
        if formula and _gives(claim, outcome.observed, key.value):
            found = [words["law_hint"].format(formula=formula)]
            terms = _terms(formula, outcome.predicted, key.value, evidence)
            return [*found, words["inputs_hint"].format(inputs=terms)] if terms else found
    return []


def _gives(claim: Claim, observed: object, answer: Value) -> bool:
    """Whether a claim predicts the number that is asked for."""
    is_law = claim.kind == "law" and claim.relation == "equals"
    return is_law and isinstance(observed, Value) and observed.formula == answer.formula


def _terms(formula: str, predicted: object, answer: Value, evidence: Evidence) -> str:
    """The terms of a law and what the run was given for them; empty unless all have names.

    What a prediction reads and its law does not name, such as a sum made by the experiment, is left
    out: readers could not insert it, and it may be the answer.
    """
    found: dict[str, str] = {}
    for path in _read(predicted):
        known = _GIVEN.fullmatch(path)
        written = [*_TERMS.get(known["path"] if known else "", ())]
        written += [name] if (name := law_formula.named(path)) else []
        if not written:
            return ""
        term = next((one for one in written if _place(formula, one) is not None), None)
        if term is None or term in found:
            continue
        value = evidence.evaluate(path).result
        if not isinstance(value, Value) or value.printed == answer.printed:
            return ""
        found[term] = path
    in_order = sorted(found, key=lambda term: _place(formula, term) or 0)
    return "; ".join(f"`{term}` = {{{{ {found[term]} }}}}" for term in in_order)


def _read(predicted: object) -> Iterator[str]:
    """What a prediction reads, and then what the totals among it are made of."""
    paths = [one.formula for one in predicted.leaves] if isinstance(predicted, Value) else []
    yield from paths
    runs = {known["run"] for path in paths if (known := _GIVEN.fullmatch(path))}
    yield from (f"{run}.{path}" for run in sorted(runs) for path in _BEHIND_TOTALS)


def _place(formula: str, term: str) -> int | None:
    """Where a term stands in a law's code, as a term of its own; None where it does not."""
    alone = re.compile(rf"(?<!\w){re.escape(term)}(?!\w)")
    inside = (alone.search(formula, *code.span(1)) for code in _CODE.finditer(formula))
    return next((one.start() for one in inside if one), None)
