"""Cost: formulas beside measurements, and a calculator.

A row of a table is what was predicted, what a run measured, and how far off it was. A calculator
has fields in units that people think in, formulas, and the runs that these were compared with.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from typing import NamedTuple

from markupsafe import Markup, escape

from generator.content.calculator import Calculator, CalculatorInput, CalculatorOutput
from generator.content.lesson import CostFile, CostTable
from generator.figures.step_rules import number
from generator.pages.draft import Draft
from generator.pages.elements.element import Block, Content, Element, Fold, ListOfLines
from generator.pages.elements.programs import run_link
from generator.pages.elements.tables import Row, Table
from generator.pages.view import label
from generator.pages.views.claims import BOUNDS, css_of, sides_of, tolerance_of
from generator.printing.folio import ABSENT, Folio
from generator.values import calculator as calculators
from generator.values import units
from generator.values.calculator import Checked
from generator.values.claim_formula import formula_of, observed_run, off_by
from generator.values.value import Value, numeric
from generator.values.verdicts import Judged
from runners.core.trace.fields import NBSP
from runners.core.trace.schema import Setting

PER_PARAMETER = ("B", "values")  # counts of them are means, as half a byte for each parameter
MAX_DIGITS, STARTED, EXACTLY = 6, 4, 17  # of a number that is no whole one
MANY_TIMES = 100  # from low to high: beyond, a slider moves by powers
# Models of the buttons, trained in bf16 with Adam: sizes of a plan, cited rates of devices.
MODELS = {
    "Llama 8B": "plan_llama_8b.fsdp_on_8", "Llama 13B": "plan_llama_13b.fsdp_on_16",
    "Llama 70B": "plan_llama_70b.fsdp_on_64",
}  # fmt: skip
DEVICES = {"H100": ("h100-bf16", "connectx-7"), "A100": ("a100-bf16", "selene-hdr")}
PER_NODE = 8  # devices, and adapters
HALF, STATE = 2, 12  # bytes: of a number in bf16; of a master and two moments in fp32
OF_PROGRAM = {"reductions"}  # inputs that a model leaves as they are
_END_OF_CALLED = re.compile(r"[,:]| \(")
_FORMULA = re.compile(r"`[^`]+`(?=[^`])")


class CalculatorField(NamedTuple):
    """An input of a calculator, in a unit that people think in."""

    name: str
    label: Markup
    called: str
    unit: str
    says: str  # what it starts with, in words
    size: str  # of one of the field, in what formulas calculate with
    start: str
    exact: str  # what formulas calculate with until a reader types
    low: str
    high: str
    step: str
    is_whole: bool
    most: str  # a formula of the other inputs, as scripts read it
    covered: Sequence[Markup]  # least and largest in the runs
    symbol: str
    range: str  # the same, as the script reads them


class CalculatorResult(NamedTuple):
    """A result of a calculator, and its formula as the script reads it."""

    name: str
    label: Markup
    postfix: str
    quantity: str


@dataclass(frozen=True)
class OperatedCalculator(Element):
    """A calculator: a form for a script, and what stands below it in any case."""

    paper: Block | None  # in place of the form
    fields: Sequence[CalculatorField]  # none where this machine has no numbers to start from
    known: Sequence[tuple[str, str]]  # models: a name, and the numbers of the fields
    results: Sequence[CalculatorResult]
    below: Content


def cost(draft: Draft) -> Iterator[Element | Markup]:
    """The page of what a technique costs."""
    lesson = draft.lesson(CostFile)
    yield draft.lede(lesson.introduction)
    yield from draft.item(lesson.commit, "commit")
    for written in lesson.tables:
        title = draft.folio.line(written.title)
        yield draft.heading(2, title)
        what = f"“{title}”{draft.figure_to_try(written.figure)}"
        asked = lesson.commit if written.waits else None
        yield draft.waiting(asked, what, _compared(written, draft))
    yield from draft.passage("A calculator", lesson.calculator.introduction)
    yield _calculator(lesson.calculator, draft)
    yield from draft.end(lesson.checks, lesson.takeaway)


def _compared(written: CostTable, draft: Draft) -> Iterator[Element | Markup]:
    """Laws beside what their runs measured."""
    yield draft.prose(written.text)
    yield from draft.figure(written.figure)
    yield _cost_table(written, draft.folio)
    if written.afterword:
        yield draft.prose(written.afterword)
    yield from draft.backing(written.backed_by, written.sources)


def _cost_table(written: CostTable, folio: Folio) -> Table:
    """A row for each law: case, formula (explained once), both sides, the error."""
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
            folio.line(row.what), run_link(run, folio)
        )
        says = folio.line(formula) if formula else ABSENT
        rows.append([what, says, *sides_of(outcome, folio), _off_by(outcome, folio)])
    heads, way = folio.ui["cost"], folio.column_head(outcome.observed for outcome in outcomes)
    numbers = (heads["predicted"], way, heads["differs_by"])
    return Table(["Case", "Formula", *(f"#{title}" for title in numbers)], rows)


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


def _calculator(written: Calculator, draft: Draft) -> OperatedCalculator:
    """A lesson's calculator: fields, known models, results beside values of runs."""
    folio = draft.folio
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
    heads, way = folio.ui["cost"], folio.column_head(check.measured for check in of_all)
    results, rows, by_run = [], [], []
    for output, checks in zip(written.outputs, checked, strict=True):
        title, postfix = folio.line(output.label), calculators.parsed(output.formula).postfix
        results.append(CalculatorResult(output.name, title, postfix, output.quantity))
        rows.append([title, *_result(output, checks, inputs, called, folio)])
        for check in checks:
            numbers = map(folio.printed, (check.by_formula, check.measured, check.off))
            by_run.append([title, run_link(check.run, folio), *numbers])
    titles = ["Result", "Run", f"#{heads['predicted']}", f"#{way}", f"#{heads['differs_by']}"]
    summary = Markup("Each formula compared with every run")
    afterword = written.afterword
    below = [
        *([Block([draft.prose(afterword)])] if afterword else []),
        Table(["Result", "Formula", "#At the start", "Compared with"], rows),
        Fold(summary, [Table(titles, by_run)], "pb-numbers"),
    ]
    paper, known = _on_paper(complete), list(_model_buttons(complete, folio))
    return OperatedCalculator(paper, complete, known, results, below)


def _on_paper(fields: Sequence[CalculatorField]) -> Block | None:
    """What stands in place of fields where nobody can type into them."""
    says = "On a screen, with JavaScript, this page takes your own inputs. The table below gives "
    says += "the formulas, and their results for these:"
    start = Markup('{}: <span class="pb-label">{}</span>')
    lines = ListOfLines([start.format(field.label, field.says) for field in fields])
    return Block([Block([escape(says)], tag="p"), lines], "pb-paper") if fields else None


def _called(variable: CalculatorInput) -> str:
    """What formulas and messages call an input: the beginning of its label."""
    return _END_OF_CALLED.split(variable.label)[0]


def _model_buttons(fields: Sequence[CalculatorField], folio: Folio) -> Iterator[tuple[str, str]]:
    """Known models as buttons that fill all fields; none whose number a field would refuse."""
    for name, numbers in _known_models({field.name for field in fields}, folio):
        own = [field for field in fields if field.name in numbers]
        typed = {field.name: numbers[field.name] / float(field.size) for field in own}
        if all(float(field.low) <= typed[field.name] <= float(field.high) for field in own):
            texts = {name: _typed(number, STARTED) for name, number in typed.items()}
            yield name, json.dumps(texts)


def _known_models(names: set[str], folio: Folio) -> Iterator[tuple[str, dict[str, float]]]:
    """Label and `{input: number}` of each model that has all `names`; per device if timed."""
    known, is_timed = folio.book.references, not names.isdisjoint(("flops", "rate"))
    for (model, plan), device in product(MODELS.items(), DEVICES if is_timed else ["GPUs"]):
        run = folio.book.run(plan)
        inputs = _of_model(run.settings) if run else {}
        if is_timed:
            flops, rate = (
                known[cited].value if cited in known else None for cited in DEVICES[device]
            )
            inputs |= {"flops": flops, "rate": PER_NODE * rate} if flops and rate else {}
        if run and names - OF_PROGRAM <= inputs.keys():
            yield f"{model}, bf16, Adam, {inputs['ranks']:.0f} {device}", inputs


def _of_model(settings: dict[str, Setting]) -> dict[str, float]:
    """Sizes of a transformer whose embedding and head are the root, and its blocks the units."""
    total, ranks, layers, vocabulary, width = (
        number(settings[name])
        for name in ("num_parameters", "num_ranks", "num_layers", "vocabulary", "hidden_size")
    )
    root = 2 * vocabulary * width
    block = (total - root) / layers
    stage = math.ceil(layers / ranks) * block + root / 2  # with the embedding or the head
    return {
        "parameters": total, "ranks": ranks, "nodes": ranks / PER_NODE,
        "largest": root / total, "next": block / total, "excess": stage * ranks / total - 1,
        "value_bytes": HALF, "gathered": HALF, "reduced": HALF,
        "state_bytes": STATE, "moments": STATE / HALF, "stored": 2 * HALF + STATE,
    }  # fmt: skip


def _field(
    variable: CalculatorInput, start: Value | None, checked: list[Checked], folio: Folio
) -> CalculatorField | None:
    low, high = (calculators.bound(end, folio.evidence) for end in (variable.low, variable.high))
    if start is None or low is None or high is None:
        return None
    of, stands = units.BY_NAME[variable.quantity], float(numeric(start))
    unit, size = units.of_axis(of, abs(stands))
    ends = float(numeric(low)), float(numeric(high))
    on_runs = [check.given[variable.name] for check in checked if variable.name in check.given]
    covered = (min(on_runs, key=numeric), max(on_runs, key=numeric)) if on_runs else ()
    noun = variable.unit or ""
    counted = "" if noun in variable.label.replace(",", "").split() else noun
    is_count, has_powers = (
        variable.quantity == "count",
        ends[0] > 0 and ends[1] / ends[0] > MANY_TIMES,
    )
    return CalculatorField(
        name=variable.name,
        label=folio.line(variable.label),
        called=_called(variable),
        unit=f"{unit} {counted}".strip(),
        says=f"{_typed(stands / size, STARTED)} {unit} {counted}".replace(" %", "%").strip(),
        size=_typed(float(size)),
        start=_typed(stands / size, STARTED),
        exact=_typed(stands, EXACTLY),
        low=_typed(ends[0] / size),
        high=_typed(ends[1] / size),
        step=" ".join(["whole"] * (is_count and size == 1) + ["powers"] * has_powers),
        is_whole=is_count and variable.unit not in PER_PARAMETER,
        most=calculators.parsed(variable.at_most).postfix if variable.at_most else "",
        covered=[folio.show(end) for end in {str(end): end for end in covered}.values()],
        symbol=NBSP + noun if noun and not noun.islower() else "",
        range=" ".join(str(float(numeric(end))) for end in covered),
    )


def _typed(number: float, digits: int = MAX_DIGITS) -> str:
    """A number as a field holds it: no more digits than tell it apart, and no exponent."""
    if number.is_integer() and abs(number) < 2**53:
        return str(int(number))
    return format(Decimal(f"{number:.{digits}g}"), "f")


def _result(
    output: CalculatorOutput, checks: list[Checked], inputs: dict[str, Value | None],
    called: dict[str, str], folio: Folio,
) -> Row:  # fmt: skip
    """The formula of a result, its value at the start, and how it compares with runs."""
    parsed = calculators.parsed(output.formula)
    worst = max(checks, key=lambda check: abs(float(numeric(check.off))), default=None)
    formula = parsed.readable.replace("*", "×").replace("-", "−")
    formula = re.sub(r"[a-z_]\w*", lambda name: called.get(name[0], name[0]), formula)
    at_start = calculators.result(output, inputs)
    compared = escape("No run of this machine measured it.")
    if worst is not None:
        counted = Markup('<span class="pb-label" title="counted from the runs below">{}</span> {}')
        runs = counted.format(len(checks), "run" if len(checks) == 1 else "runs")
        off = Markup("no error, as in")
        if worst.off.number:
            off = Markup("largest error {}, in").format(folio.printed(worst.off))
        # How far off the build lets it be, where the book was written.
        within = tolerance_of(output.within, at_start)
        compared = Markup('{}; {} {} (allowed: <span class="pb-given pb-label">{}</span>)').format(
            runs, off, run_link(worst.run, folio), within
        )
        if worst.is_beyond(output.within):
            says = ' <strong class="pb-does-not-hold">further off than it may be</strong>'
            compared += Markup(says)
    return [label(formula), folio.printed(at_start), compared]
