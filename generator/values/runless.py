"""Evidence of a site without runs: an expression calculates with the numbers that stand in it.

In: expressions without names. Out: values, *computed* where the expression calculates, and *given*
where it only prints a number that somebody typed, which decides nothing without a source.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps

from generator.values.evaluation import Evidence
from generator.values.expression import compiled
from generator.values.filters import FILTERS, FUNCTIONS
from generator.values.paths import Evaluation
from generator.values.value import ExpressionError, Value, constant

_PRINTS = frozenset({"unit", "digits", "percent", "times", "exact"})
NO_RUNS = "this site has no runs, so expressions calculate with numbers"


def _of_numbers(function: Callable[..., object]) -> Callable[..., object]:
    @wraps(function)
    def over(first: object, *more: object) -> object:
        return function(constant(first) if isinstance(first, int | float) else first, *more)

    return over


class Runless(Evidence):
    """Evidence of a site without runs: only numbers in the expression itself."""

    functions = {**FUNCTIONS, **{name: _of_numbers(function) for name, function in FILTERS.items()}}
    rests_on_runs = False

    def prints_typed_number(self, expression: str) -> bool:
        """Whether an expression calculates nothing, and prints a number as it was typed."""
        if self.evaluate(expression).error:
            return False
        read = compiled(expression)
        is_sum = any(isinstance(node, ast.BinOp) for node in ast.walk(read.tree))
        return not is_sum and read.functions <= _PRINTS

    def evaluate_with(self, names: Mapping[str, object], expression: str) -> Evaluation:
        """A number as a value, whose formula is the expression as it is written."""
        evaluation = super().evaluate_with(names, expression)
        if isinstance(evaluation.result, int | float):
            evaluation.result = constant(evaluation.result)
        if isinstance(evaluation.result, Value):
            evaluation.result = replace(evaluation.result, tree=" ".join(expression.split()))
        return evaluation

    def _root(self, name: str, reading: Evaluation) -> object:
        raise ExpressionError(f"unknown name {name!r}; {NO_RUNS}")
