"""Cost: formulas beside measurements, and a calculator as its template wants it.

A row of a table is what was predicted, what a run measured, and how far off it was. A calculator
has fields in units that people think in, formulas, and the runs that these were compared with.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

from markupsafe import Markup

from generator.content.calculator import Calculator, CalculatorInput, CalculatorOutput
from generator.content.lesson import CostTable
from generator.pages.view import Row, View, label
from generator.pages.views.claims import BOUNDS, css_of, sides_of, tolerance_of
from generator.pages.views.known_models import known_models
from generator.printing.folio import ABSENT, Folio
from generator.values import calculator as calculators
from generator.values import units
from generator.values.calculator import Checked
from generator.values.claim_formula import formula_of, observed_run, off_by
from generator.values.value import Value, numeric
from generator.values.verdicts import Judged
from runners.core.trace.fields import NBSP

PER_PARAMETER = ("B", "values")  # counts of them are means, as half a byte for each parameter
MAX_DIGITS, STARTED, EXACTLY = 6, 4, 17  # of a number that is no whole one
MANY_TIMES = 100  # from low to high: beyond, a slider moves by powers
_END_OF_CALLED = re.compile(r"[,:]| \(")
_FORMULA = re.compile(r"`[^`]+`(?=[^`])")


def cost_table(
    written: CostTable, folio: Folio, run_link: Callable[[str], Markup]
) -> tuple[list[str], list[Row]]:
    """Pair: titles; a row for each law: case, formula (explained once), both sides, the error."""
    outcomes = [folio.evidence.judged(row.law) for row in written.rows]
    rows: list[Row] = []
    explained_before: set[str] = set()
    for row, outcome in zip(written.rows, outcomes, strict=True):
        run = observed_run(outcome.claim, folio.evidence)
        folio.run(run)
        folio.shown_claims.add(row.law)
        formula = formula_of(outcome.claim) or ""
        explained = _FORMULA.match(formula)
        if formula in explained_before and explained:
            formula = explained[0]
        explained_before.add(formula)
        what = Markup('{}<br><span class="pb-said">{}</span>').format(
            folio.line(row.what), run_link(run)
        )
        says = folio.line(formula) if formula else ABSENT
        rows.append([what, says, *sides_of(outcome, folio), _off_by(outcome, folio)])
    heads, way = folio.ui["cost"], folio.column_head(outcome.observed for outcome in outcomes)
    numbers = (heads["predicted"], way, heads["differs_by"])
    return ["Case", "Formula", *(f"#{title}" for title in numbers)], rows


def _off_by(outcome: Judged, folio: Folio) -> Markup:
    """Error of a formula, or the share by which a run exceeds a bound, with the verdict."""
    relation, word = outcome.claim.relation, outcome.verdict.replace("_", " ")
    is_bound, slack = relation != "equals", tolerance_of(outcome.claim.tolerance, outcome.observed)
    says = f"bound {word}" if is_bound else word
    verdict = Markup('<span class="pb-verdict {}">{}</span>').format(css_of(outcome), says)
    above = off_by(outcome.observed, outcome.predicted, outcome.claim.tolerance) if slack else None
    more = float(numeric(above)) if above else 0
    if is_bound and more * BOUNDS.get(relation, 0) <= 0:
        return verdict
    marks = outcome.observed.marks if outcome.observed else []  # which stand beside the measurement
    once = folio.without_mark(marks[-1] if marks else "")
    off = once.printed(off_by(outcome.predicted, outcome.observed))
    if above and (is_bound or outcome.verdict == "does_not_hold"):
        way = f"measured {{}} {'above' if more > 0 else 'below'} the formula"
        far, allowed = once.show(replace(above, number=abs(more))), label(f"{slack} allowed")
        off = Markup(f"{'{} beyond' if is_bound else way},<br>{{}}").format(far, allowed)
    return off if outcome.verdict == "holds" and not is_bound else off + Markup("<br>") + verdict


# --- the calculator


def calculator(written: Calculator, folio: Folio) -> View:
    """`View` of a lesson's calculator: fields, known models, outputs beside values of runs.

    Without fields, this machine has no numbers to start from.
    """
    inputs = {variable.name: folio.value(variable.start) for variable in written.inputs}
    checked = [calculators.checks(output, written, folio.evidence) for output in written.outputs]
    of_all = [check for of_output in checked for check in of_output]
    fields = [
        _field(variable, inputs.get(variable.name), of_all, folio) for variable in written.inputs
    ]
    for check in of_all:
        folio.run(check.run)
    complete = [field for field in fields if field] if all(fields) else []
    called = {variable.name: _called(variable) for variable in written.inputs}
    return View(
        fields=complete,
        known=list(_model_buttons(complete, folio)),
        outputs=[
            _output(output, of_output, inputs, called, folio)
            for output, of_output in zip(written.outputs, checked, strict=True)
        ],
        heading=folio.column_head(check.measured for check in of_all),
    )


def _called(variable: CalculatorInput) -> str:
    """What formulas and messages call an input: the beginning of its label."""
    return _END_OF_CALLED.split(variable.label)[0]


def _model_buttons(fields: Sequence[View], folio: Folio) -> Iterator[View]:
    """Known models as buttons that fill all fields; none whose number a field would refuse."""
    for name, numbers in known_models({field.name for field in fields}, folio):
        own = [field for field in fields if field.name in numbers]
        typed = {field.name: numbers[field.name] / float(field.size) for field in own}
        if all(float(field.low) <= typed[field.name] <= float(field.high) for field in own):
            texts = {name: _typed(number, STARTED) for name, number in typed.items()}
            yield View(label=name, numbers=json.dumps(texts))


def _field(
    variable: CalculatorInput, start: Value | None, checked: list[Checked], folio: Folio
) -> View | None:
    low, high = (calculators.bound(end, folio.evidence) for end in (variable.low, variable.high))
    if start is None or low is None or high is None:
        return None
    of, stands = units.BY_NAME[variable.quantity], float(numeric(start))
    unit, size = units.of_axis(of, abs(stands))
    ends = float(numeric(low)), float(numeric(high))
    on_runs = [check.given[variable.name] for check in checked if variable.name in check.given]
    covered = (min(on_runs, key=numeric), max(on_runs, key=numeric)) if on_runs else ()
    counted = (
        variable.unit
        if variable.unit and variable.unit not in variable.label.replace(",", "").split()
        else ""
    )
    is_whole = variable.quantity == "count" and variable.unit not in PER_PARAMETER
    return View(
        name=variable.name,
        label=folio.line(variable.label),
        called=_called(variable),
        unit=f"{unit} {counted}".strip(),
        says=f"{_typed(stands / size, STARTED)} {unit} {counted}".replace(" %", "%").strip(),
        size=_typed(float(size)),  # of one of the field, in what formulas calculate with
        start=_typed(stands / size, STARTED),
        exact=_typed(stands, EXACTLY),  # what formulas calculate with until a reader types
        low=_typed(ends[0] / size),
        high=_typed(ends[1] / size),
        step=_step(*ends, is_whole=variable.quantity == "count" and size == 1),
        is_whole=is_whole,
        most=calculators.parsed(variable.at_most).postfix
        if variable.at_most
        else "",  # as scripts read it
        covered=[folio.show(end) for end in {str(end): end for end in covered}.values()],
        symbol=NBSP + variable.unit if variable.unit and not variable.unit.islower() else "",
        range=" ".join(str(float(numeric(end))) for end in covered),  # as the script reads them
    )


def _step(low: float, high: float, *, is_whole: bool) -> str:
    words = ["whole"] if is_whole else []
    return " ".join([*words, "powers"] if low > 0 and high / low > MANY_TIMES else words)


def _typed(number: float, digits: int = MAX_DIGITS) -> str:
    """A number as a field holds it: no more digits than tell it apart, and no exponent."""
    if number.is_integer() and abs(number) < 2**53:
        return str(int(number))
    return format(Decimal(f"{number:.{digits}g}"), "f")


def _output(
    output: CalculatorOutput, checks: list[Checked], inputs: dict[str, Value | None],
    called: dict[str, str], folio: Folio,
) -> View:  # fmt: skip
    parsed = calculators.parsed(output.formula)
    worst = max(checks, key=lambda check: abs(float(numeric(check.off))), default=None)
    formula = parsed.readable(output.formula).replace("*", "×").replace("-", "−")
    formula = re.sub(r"[a-z_]\w*", lambda name: called.get(name[0], name[0]), formula)
    at_start = calculators.result(output, inputs)
    return View(
        name=output.name,
        label=folio.line(output.label),
        quantity=output.quantity,
        formula=label(formula),
        postfix=parsed.postfix,  # as the script reads formulas
        at_start=folio.printed(at_start),
        checks=checks,
        worst=worst,
        is_beyond=worst is not None and worst.is_beyond(output.within),
        # How far off the build lets it be, where the book was written.
        within=tolerance_of(output.within, at_start),
    )
