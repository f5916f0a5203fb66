"""The way to a number, step by step: the law that gives it, and what goes into the law.

In: an item that asks for a number and names a law which predicts this very number. Out: hints, as
Lines, in the order in which one works it out; the last step, the result, is left to the reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from generator.content.claim import Claim
from generator.content.quiz import Complete, Item, Number, Predict
from generator.evidence import law_formula
from generator.evidence.value import Value
from generator.items.keys import Key

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence


def steps(item: Item, key: Key, evidence: Evidence, words: Mapping[str, str]) -> list[str]:
    """The hints that lead to the answer; none where no law of the item gives it."""
    if not isinstance(item, Number | Predict | Complete) or key.value is None:
        return []
    for name in item.claims:
        claim, outcome = evidence.book.claims[name], evidence.outcome(name)
        formula = law_formula.shown(claim)
        if formula and _gives(claim, outcome.observed, key.value):
            found = [words["law_hint"].format(formula=formula)]
            inputs = _inputs(outcome.predicted)
            return [*found, words["inputs_hint"].format(inputs=inputs)] if inputs else found
    return []


def _gives(claim: Claim, observed: object, answer: Value) -> bool:
    """Whether a claim predicts the number that is asked for."""
    is_law = claim.kind == "law" and claim.relation == "equals"
    return is_law and isinstance(observed, Value) and observed.formula == answer.formula


def _inputs(predicted: object) -> str:
    """What goes into a prediction, as a Line; empty unless all of it has a name."""
    leaves = predicted.leaves if isinstance(predicted, Value) else ()
    named = {law_formula.named(leaf.formula): leaf.formula for leaf in leaves}
    if None in named:
        return ""
    return "; ".join(f"{name}: {{{{ {formula} }}}}" for name, formula in named.items())
