"""Expressions: what an author may write, what it comes to, and that nothing else gets through."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofbook.generator.content.errors import ContentError
from proofbook.generator.kinds.calculators.formulas import parsed
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.expression import compiled
from proofbook.generator.values.filters import FUNCTIONS
from proofbook.generator.values.value import AbsentError, ExpressionError

MEMORY, TRAINING = "tiny_memory.whole", "tiny_training.averaged"
SAME = ""  # the formula is the expression itself

CASES = [
    # expression, what a page prints, kind, the formula beside it
    (f"{MEMORY}.ranks[0].memory.peak_bytes", "160 KiB", "measured", SAME),
    (f"{MEMORY}.model.layers['layer1'].bytes", "39.1 KiB", "given", SAME),
    (f"{MEMORY}_budget.error.requested_bytes|exact", "40,000 bytes", "measured",
     f"{MEMORY}_budget.error.requested_bytes"),
    (f"{MEMORY}_budget.status | word", "out of memory", "measured", f"{MEMORY}_budget.status"),
    (f"{TRAINING}.epochs[0].loss | digits(2)", "2.0", "measured", f"{TRAINING}.epochs[0].loss"),
    (f"{TRAINING}.stages['load'].shape_out | shape", "20 × 8", "measured",
     f"{TRAINING}.stages['load'].shape_out"),
    (f"median({TRAINING}.timing.step)", "2.20 ms", "measured",
     f"{TRAINING}.timing.step.median_seconds"),
    (f"{TRAINING}.prediction['forward'].facts.loss", "1.250", "measured",
     f"{TRAINING}.prediction['forward'].facts.loss"),
    (f"{TRAINING}.ranks | each('num_samples') | total", "40", "computed",
     f"total({TRAINING}.ranks[0].num_samples, {TRAINING}.ranks[1].num_samples)"),
    (f"mean(each({TRAINING}.ranks, 'num_samples'))", "20", "computed",
     f"mean({TRAINING}.ranks[0].num_samples, {TRAINING}.ranks[1].num_samples)"),
    (f"{TRAINING}.epochs | count", "5", "computed", f"count({TRAINING}.epochs)"),
    ("cited['fp32-width'] * tiny_memory.whole.model.num_parameters", "78.1 KiB", "computed", SAME),
    ("predicted('whole-peak')", "156 KiB", "computed", "2 * tiny_memory.whole.model.bytes"),
    # As in Python, `|` takes the whole sum before it, and brackets that change nothing go.
    (f"{MEMORY}.world_size / 3 + 1|percent", "133%", "computed", f"{MEMORY}.world_size / 3 + 1"),
    (f"-(2 * ({MEMORY}.seed - 7))", "−70", "computed", f"-(2 * ({MEMORY}.seed - 7))"),
    (f"{MEMORY}.seed * ({MEMORY}.seed / 2)", "882", "computed", SAME),
    # A law is written out.
    (f"ring_bytes({MEMORY}.model.bytes, 4)", "117 KiB", "computed", f"1.5 * {MEMORY}.model.bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "shown", "kind", "formula"), CASES)
def test_a_value_has_its_text_its_kind_and_its_formula(evidence, expression, shown, kind, formula):
    value = evidence.value(expression)
    assert str(value).replace("\u00a0", " ") == shown
    assert value.kind == kind
    assert value.formula == (formula or expression)


def test_a_field_that_is_empty_is_no_value_and_one_that_does_not_exist_is_an_error(evidence):
    assert evidence.reading(MEMORY, "timing", "measures", "none") is None
    with pytest.raises(ContentError, match="no field 'peaks'; did you mean 'peak"):
        evidence.reading(MEMORY, "ranks", 0, "memory", "peaks")
    with pytest.raises(ContentError, match="unknown name 'nobody'"):
        evidence.reading("nobody.one", "world_size")


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (f"{MEMORY}.seed ** 2", "is not allowed; expressions are made of"),
        ("rank(*tiny_memory)", "'*tiny_memory' is not allowed"),
        (f"{MEMORY}.seed # and more", "'#' is not allowed"),
        (f"{TRAINING}.epochs[{MEMORY}.seed]", "only a whole number or a word"),
        (f"mean({MEMORY})", f"{MEMORY} is not a list"),
        ("ring_byte(1, 2)", "did you mean 'ring_bytes'?"),
        (f"{MEMORY}.seed | digits(99)", "from 1 to 15"),
        (f"{MEMORY}.model.bytes | percent", "wants a share"),
        ("rank('0')", "wants a whole number"),
        ("holds(tiny_memory)", "takes a claim's id in quotes"),
        (f"ended({MEMORY}.ranks)", "takes a run"),
        (f"ended({MEMORY}, 'rank')", "takes run"),
        (f"{MEMORY}.__class__", "no field '__class__'"),
        (f"{MEMORY}.wrld_size", "did you mean 'world_size'?"),
        ("tiny_mammary.whole", "did you mean 'tiny_memory'?"),
        (f"{MEMORY}.ranks[7].rank", "no element 7"),
        (f"{MEMORY}.model.bytes + {MEMORY}.timing.wall_seconds", "cannot be added"),
        (f"{MEMORY} + 1", "only single values"),
        ("'a' * 100000000", "arithmetic on text"),
        (f"{MEMORY}.timing.wall_seconds * 1{'0' * 400}", "beyond what can be calculated with"),
        ("1 / 0", "divides by zero"),
        ("(" * 90 + "1" + ")" * 90 + "1", "not an expression"),
        ("", "not an expression"),
        ("2 * 3", "bare constant"),
        (f"{MEMORY}.world_size + 33", "33: a sum has one constant at most, from 1 to 7"),
        (f"{MEMORY}.world_size + 7 + 7", "7, 7: a sum has one constant at most"),
        (f"{MEMORY}.world_size + 3 * 11", "3 * 11: a sum has one"),
        (f"{MEMORY}.model.bytes + 1", "cannot be added"),
        (f"{MEMORY}.model.bytes * 0.1", "0.1 is no whole factor up to 12 and no power of ten"),
        (f"ring_bytes({MEMORY}.model.bytes * 37, 4)", "37 is no whole factor"),
        (f"({MEMORY}.seed * 37) | digits(2)", "37 is no whole factor"),
        (f"{MEMORY}.world_size | unit('s')", "|unit names 's', which follows"),
        (f"{MEMORY}.world_size | unit('GiB of it')", "|unit names 'GiB'"),
        (f"{MEMORY}.world_size | unit('operations')", "|unit names 'operations'"),
        (f"{MEMORY}.world_size | unit('samples/s')", "|unit names"),
        (MEMORY, "go on to one"),
        (f"{TRAINING}.timing.step", "| median"),
    ],
)
def test_everything_else_is_refused_with_the_reason(evidence, expression, said):
    problem = evidence.why_unprintable(evidence.evaluate(expression))
    assert problem is not None
    assert said in problem


class Watched:
    """What an expression may take a step from; whatever else Python would touch is a mistake."""

    def step(self, key):
        return Watched()

    def __getattribute__(self, name):
        assert name in ("step", "__class__"), name
        return object.__getattribute__(self, name)


TEXT = st.text("ab.[]()'|+-*/ 019_{}%~<>=,:#\"\\é\n") | st.text(max_size=60)


@given(TEXT)
def test_any_text_is_an_expression_or_refused(text):
    try:
        expression = compiled(text)
        parsed(text)
    except ExpressionError:
        return
    with suppress(ExpressionError, AbsentError):
        expression.evaluate(dict.fromkeys(expression.names, Watched()), FUNCTIONS)


def test_arithmetic_over_two_runs_is_done_on_a_machine_that_has_both_or_is_an_error(copy):
    over_both = "tiny_memory.whole.model.bytes / tiny_training.single.model.bytes"
    copy.add_machine("desk", "tiny_memory")
    found = Evidence(copy.load()).evaluate(over_both)
    assert found.error is None
    assert found.result.machines == {"reference-frozen"}
    copy.trace("tiny_memory").unlink()
    found = Evidence(copy.load()).evaluate(over_both)
    assert "mixes two machines (desk, reference-frozen)" in found.error


def test_a_run_that_every_machine_skipped_prints_that_it_was_not_measured_here(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    for machine in ("desk", "reference-frozen"):
        copy.change_run(
            "tiny_memory.whole_budget", machine,
            status="skipped", reason="no limit can be set", error=None, ranks=[],
        )  # fmt: skip
    evidence = Evidence(copy.load())
    value = evidence.printable("tiny_memory.whole_budget.error.requested_bytes * 2")
    assert str(value) == "not measured here"
    assert value.absent == "tiny_memory.whole_budget: no limit can be set"
    assert all("/quiz.yml:" in one for one in copy.errors())  # no item rests on what nobody ran


def test_a_value_that_only_this_machine_lacks_is_no_mistake_but_a_typo_is(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.change_run("tiny_memory.whole", "desk", ranks=[])
    evidence = Evidence(copy.load())
    assert evidence.printable("tiny_memory.whole.ranks[0].num_parameters").absent
    assert evidence.why_unprintable(evidence.evaluate("tiny_memory.whole.settings.sead"))
    assert evidence.why_unprintable(evidence.evaluate("tiny_memory.whole.ranks[9].rank"))


# --- outcomes: in words, explained by the recorded bytes, and never by a declaration


RUN = "tiny_memory.whole_budget"
ERROR = {
    "kind": "out_of_memory", "message": "no", "phase": "backward", "rank": 0, "step": 0,
    "requested_bytes": 40_000, "held_bytes": 100_000,
}  # fmt: skip


def words(copy, **fields):
    copy.change_run(RUN, **fields)
    return str(Evidence(copy.load()).evaluate(f"ended({RUN})").result)


FULL = {**ERROR, "message": "std::bad_alloc", "requested_bytes": None}


@pytest.mark.parametrize(
    ("error", "budget_bytes", "is_explained"),
    [
        (ERROR, 120_000, True),  # what was held fits, and the request does not
        (FULL, 200_000, True),  # a heap that had less left than it grows by
        (FULL, 100_000 + (1 << 20), False),
        (ERROR, 1_200_000, False),  # there was room
        (ERROR, 140_000, False),  # it would have fitted to the byte
        (ERROR, 99_999, False),  # more was held than allowed
        (ERROR, None, False),
        ({**ERROR, "held_bytes": None}, 120_000, False),
        ({**ERROR, "kind": "exception"}, 120_000, False),
    ],
)
def test_memory_is_the_reason_where_the_budget_explains_it(copy, error, budget_bytes, is_explained):
    rest = "" if is_explained else ", not explained by the budget"
    told = words(copy, error=error, budget_bytes=budget_bytes)
    assert told == f"out of memory in backward{rest}"


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        ("died", {"kind": "signal", "signal": "SIGKILL"}, "killed by SIGKILL in a step"),
        ("deadlocked", {"kind": "hang", "rank": None}, "deadlocked in a step"),
        ("deadlocked", {"kind": "timed_out"}, "deadlocked in a step until the time-out"),
        ("failed", {"kind": "exception"}, "failed with an exception in a step"),
    ],
)
def test_other_outcomes_name_their_phase_and_cause(copy, status, error, told):
    error = {"message": "", "phase": "step", "rank": 1, "step": 2, "requested_bytes": None, **error}
    assert words(copy, status=status, error=error) == told


@pytest.mark.parametrize(("field", "value"), [("status", "completed"), ("budget_bytes", 1 << 40)])
def test_neither_a_declaration_nor_a_larger_budget_saves_a_law_about_memory(real, field, value):
    run, law = "wide_fsdp_budget", "lm-out-of-memory-in-forward@large_model.wide_fsdp_budget"
    assert Evidence(real).judged(law).verdict == "holds"
    shown = real.traces["large_model"]
    ended = shown.trace.runs[run].model_copy(update={field: value})
    trace = shown.trace.model_copy(update={"runs": {**shown.trace.runs, run: ended}})
    traces = {**real.traces, "large_model": replace(shown, trace=trace)}
    assert Evidence(replace(real, traces=traces)).judged(law).is_broken_law
