"""Cost: formulas beside measurements, and a calculator.

A row of a table is what was predicted, what a run measured, and how far off it was. A calculator
has fields in units that people think in, formulas, and the runs that these were compared with.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from markupsafe import Markup, escape

from proofbook.generator.kinds.calculators import formulas as calculators
from proofbook.generator.kinds.calculators import words
from proofbook.generator.kinds.calculators.formulas import Checked
from proofbook.generator.kinds.figures.step_rules import number
from proofbook.generator.kinds.lessons import parts
from proofbook.generator.kinds.lessons.words import CostFile, CostTable
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Block, Element, Fold, Made
from proofbook.generator.pages.elements.programs import run_link
from proofbook.generator.pages.elements.tables import Row, Table
from proofbook.generator.pages.environment import label, typed
from proofbook.generator.pages.views.claims import BOUNDS, css_of, in_prose, sides_of, tolerance_of
from proofbook.generator.printing.folio import ABSENT, Folio
from proofbook.generator.values import units
from proofbook.generator.values.claim_formula import formula_of, observed_run, off_by
from proofbook.generator.values.value import Value, numeric
from proofbook.generator.values.verdicts import Judged
from proofbook.runners.core.trace.schema import Setting

STARTED = 4  # digits of a number that is no whole one
# Models of the buttons, trained in bf16 with Adam: sizes of a plan, cited rates of devices.
MODELS = {
    "Llama 8B": "plan_llama_8b.fsdp_on_8", "Llama 13B": "plan_llama_13b.fsdp_on_16",
    "Llama 70B": "plan_llama_70b.fsdp_on_64",
}  # fmt: skip
DEVICES = {"H100": ("h100-bf16", "connectx-7"), "A100": ("a100-bf16", "selene-hdr")}
PER_NODE = 8  # devices, and adapters
HALF, STATE = 2, 12  # bytes: of a number in bf16; of a master and two moments in fp32
OF_PROGRAM = {"reductions"}  # inputs that a model leaves as they are
_NAME = re.compile(r"[a-z_]\w*")


def cost(draft: Draft) -> Iterator[Element | Markup]:
    """The page of what a technique costs."""
    lesson = draft.lesson(CostFile)
    yield from parts.item(draft, lesson.commit, "commit")
    for written in lesson.tables:
        title = draft.folio.line(written.title)
        yield draft.heading(2, title)
        what = f"“{title}”{parts.figure_to_try(draft, written.figure)}"
        asked = lesson.commit if written.waits else None
        told: list[Element | Markup] = [
            draft.prose(written.text),
            *parts.figure(draft, written.figure),
        ]
        told += [_cost_table(written, draft.folio), *draft.texts(written.afterword)]
        told += draft.backing(written.backed_by, written.sources)
        yield draft.waiting(asked, what, told)
    yield from draft.passage("A calculator", lesson.calculator.introduction)
    yield _calculator(lesson.calculator, draft)
    yield from parts.end(draft, lesson.checks, lesson.takeaway)


def _cost_table(written: CostTable, folio: Folio) -> Table:
    """A row for each law: case, formula (explained once), both sides, the error."""
    outcomes = [folio.evidence.judged(row.law) for row in written.rows]
    rows: list[Row] = []
    explained_before: set[str] = set()
    for row, outcome in zip(written.rows, outcomes, strict=True):
        run, formula = observed_run(outcome.claim, folio.evidence), formula_of(outcome.claim) or ""
        folio.run(run)
        folio.shown_claims.add(row.law)
        if formula in explained_before and formula.startswith("`"):
            formula = "`{}`".format(formula.split("`")[1])
        explained_before.add(formula)
        what = Markup('{}<br><span class="pb-said">{}</span>')
        title = what.format(folio.line(row.what), run_link(run, folio))
        says = in_prose(formula, folio) or ABSENT
        rows.append([title, says, *sides_of(outcome, folio), _off_by(outcome, folio)])
    return Table(["Case", "Formula", *_heads((row.observed for row in outcomes), folio)], rows)


def _heads(measured: Iterable[Value | None], folio: Folio) -> list[str]:
    """The titles of what a formula says, what runs measured, and how far off it was."""
    heads = folio.ui["cost"]
    return [f"#{heads['predicted']}", f"#{folio.column_head(measured)}", f"#{heads['differs_by']}"]


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


def _calculator(written: words.Calculator, draft: Draft) -> Made:
    """A lesson's calculator: fields, known models, results beside values of runs."""
    folio, evidence = draft.folio, draft.folio.evidence
    start = {variable.name: folio.value(variable.start) for variable in written.inputs}
    checked = [calculators.checks(output, written, evidence) for output in written.outputs]
    of_all = [check for own in checked for check in own]
    fields = [_field(variable, start[variable.name], of_all, folio) for variable in written.inputs]
    complete = [field for field in fields if field] if all(fields) else []
    called = {variable.name: variable.called for variable in written.inputs}
    heads = _heads((check.measured for check in of_all), folio)
    results, rows, by_run = [], [], []
    for output, checks in zip(written.outputs, checked, strict=True):
        title, formula = folio.line(output.label), calculators.parsed(output.formula)
        results.append((output, title, formula.postfix))
        says = formula.readable.replace("*", "×").replace("-", "−")
        says = _NAME.sub(lambda name: called.get(name[0], name[0]), says)
        at_start = calculators.result(output, start)
        compared = _compared_with(output, checks, at_start, folio)
        rows.append([title, label(says), folio.printed(at_start), compared])
        for check in checks:
            folio.run(check.run)
            numbers = map(folio.printed, (check.by_formula, check.measured, check.off))
            by_run.append([title, run_link(check.run, folio), *numbers])
    afterword = [Block([text]) for text in draft.texts(written.afterword)]
    table = Table(["Result", "Formula", "#At the start", "Compared with"], rows)
    every_run = Table(["Result", "Run", *heads], by_run, css="pb-stacks")
    fold = Fold(Markup("Each formula compared with every run"), [every_run], "pb-numbers")
    return Made(
        "OperatedCalculator", fields=complete, known=[*_known_models(complete, folio)],
        results=results, below=[*afterword, table, fold],
    )  # fmt: skip


def _compared_with(
    output: words.CalculatorOutput, checks: Sequence[Checked], at_start: Value | None, folio: Folio
) -> Markup:
    """How far off a formula was at most, and in which run."""
    if not checks:
        return escape("No run of this machine measured it.")
    worst = max(checks, key=lambda check: abs(float(numeric(check.off))))
    off = Markup("no error, as in")
    if worst.off.number:
        off = Markup("largest error {}, in").format(folio.printed(worst.off))
    within = tolerance_of(output.within, at_start)  # how far off the build lets it be
    says = Markup(
        '<span class="pb-label" title="counted from the runs below">{}</span> run{}; {} {} '
        '(allowed: <span class="pb-given pb-label">{}</span>)'
    )
    if worst.is_beyond(output.within):
        says += Markup(' <strong class="pb-does-not-hold">further off than it may be</strong>')
    num, link = len(checks), run_link(worst.run, folio)
    return says.format(num, "s" * (num > 1), off, link, within)


def _known_models(fields: Sequence[Made], folio: Folio) -> Iterator[tuple[str, str]]:
    """Models that fill all fields, per device if timed; none whose number a field would refuse."""
    known, own = folio.book.references, {field.written.name: field for field in fields}
    is_timed = not own.keys().isdisjoint(("flops", "rate"))
    for (model, plan), device in product(MODELS.items(), DEVICES if is_timed else ["GPUs"]):
        run = folio.book.run(plan)
        inputs = _of_model(run.settings) if run else {}
        if is_timed:
            flops, rate = (
                known[cited].value if cited in known else None for cited in DEVICES[device]
            )
            inputs |= {"flops": flops, "rate": PER_NODE * rate} if flops and rate else {}
        taken = {name: field for name, field in own.items() if name in inputs}
        fits = all(field.low <= inputs[name] <= field.high for name, field in taken.items())
        if run and fits and own.keys() - taken.keys() <= OF_PROGRAM:
            numbers = {name: inputs[name] / field.size for name, field in taken.items()}
            texts = {name: typed(number, STARTED) for name, number in numbers.items()}
            yield f"{model}, bf16, Adam, {inputs['ranks']:.0f} {device}", json.dumps(texts)


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
    variable: words.CalculatorInput, start: Value | None, checked: Sequence[Checked], folio: Folio
) -> Made | None:
    """An input, in a unit that people think in."""
    low, high = (calculators.bound(end, folio.evidence) for end in (variable.low, variable.high))
    if start is None or low is None or high is None:
        return None
    opens, least, most = (float(numeric(number)) for number in (start, low, high))
    unit, size = units.of_axis(units.BY_NAME[variable.quantity], abs(opens))
    on_runs = [check.given[variable.name] for check in checked if variable.name in check.given]
    covered = (min(on_runs, key=numeric), max(on_runs, key=numeric)) if on_runs else ()
    noun = variable.unit or ""
    if noun not in variable.label.replace(",", "").split():
        unit = f"{unit} {noun}".strip()
    return Made(
        "CalculatorField", written=variable, label=folio.line(variable.label), unit=unit,
        size=float(size),  # of one of the field, in what formulas calculate with
        start=opens, low=least, high=most,
        # A formula of the other inputs, as scripts read it.
        most=calculators.parsed(variable.at_most).postfix if variable.at_most else "",
        # The least and the largest in the runs, and the same as the script reads them.
        covered=[folio.show(end) for end in {str(end): end for end in covered}.values()],
        range=" ".join(str(float(numeric(end))) for end in covered),
    )  # fmt: skip
