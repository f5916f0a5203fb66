"""Expressions: what an author may reach and compute, and that nothing else gets through."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator.evidence.evaluation import Evidence
from generator.evidence.expression import ENVIRONMENT, Expression, compiled
from generator.evidence.value import AbsentError, ExpressionError, Value

AVERAGED = "tiny_training.averaged"


def printed(evidence, expression):
    value = evidence.value(expression)
    assert isinstance(value, Value)
    return str(value).replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("expression", "text", "kind"),
    [
        ("tiny_memory.whole.ranks[0].memory.peak_bytes", "160 KiB", "measured"),
        ("tiny_memory.whole.ranks['0'].memory.peak_bytes", "160 KiB", "measured"),
        ("tiny_memory.whole.model.layers['layer1'].bytes", "39.1 KiB", "given"),
        ("tiny_memory.whole_budget.budget_bytes", "117 KiB", "given"),
        ("tiny_memory.whole_budget.error.requested_bytes|exact", "40,000 bytes", "measured"),
        ("tiny_memory.whole_budget.status|word", "out of memory", "measured"),
        ("tiny_memory.whole_budget.error.phase", "backward", "measured"),
        ("tiny_memory.halves.world_size", "2", "given"),
        ("tiny_memory.halves.seed", "42", "given"),
        ("tiny_memory.whole.settings.learning_rate", "0.01", "given"),
        ("tiny_memory.whole.ranks[0].memory.phases.build", "78.1 KiB", "measured"),
        (f"{AVERAGED}.epochs[-1].accuracy", "61.0%", "measured"),
        (f"{AVERAGED}.epochs[0].loss", "2.000", "measured"),
        (f"{AVERAGED}.stages['load'].shape_out|shape", "20 × 8", "measured"),
        (f"{AVERAGED}.timing.stages.load", "400 µs", "measured"),
        (f"{AVERAGED}.timing.step|median", "2.20 ms", "measured"),
        (f"{AVERAGED}.timing.step.samples|largest", "2.40 ms", "computed"),
        (f"{AVERAGED}.timing.step.num_samples", "5", "measured"),
        (f"{AVERAGED}.timing.ranks[1].waiting_share", "10.0%", "measured"),
        (f"{AVERAGED}.timing.oversubscribed", "no", "measured"),
        (f"{AVERAGED}.prediction['forward'].facts.loss", "1.250", "measured"),
        (f"{AVERAGED}.ranks|each('num_samples')|total", "40", "computed"),
        (f"{AVERAGED}.ranks|each('num_samples')|mean", "20", "computed"),
        (f"{AVERAGED}.epochs|each('loss')|smallest", "1.190", "computed"),
        (f"{AVERAGED}.epochs|count", "5", "computed"),
        (f"{AVERAGED}.epochs[0:2]|count", "2", "computed"),
        (f"({AVERAGED}.epochs|first).loss", "2.000", "measured"),
        (f"({AVERAGED}.epochs|last).epoch", "5", "measured"),
        ("tiny_memory.halves.ranks|each('memory.peak_bytes')|largest", "82.0 KiB", "computed"),
        ("(tiny_memory.whole.model.bytes / tiny_memory.whole_budget.budget_bytes)|percent",
         "66.7%", "computed"),
        ("rank(tiny_memory.whole_budget.error.rank)", "rank 0", "measured"),
        ("cited['fp32-width']", "4 B", "cited"),
        ("cited['fp32-width'] * tiny_memory.whole.model.num_parameters", "78.1 KiB", "computed"),
        ("machine.num_cores", "2", "measured"),
        ("machine.memory_bytes", "8.00 GiB", "measured"),
        ("tiny_memory.circumstances.torch", "2.13.0", "measured"),
        ("-(tiny_memory.halves.world_size - 3)", "1", "computed"),
        ("predicted('whole-peak')", "156 KiB", "computed"),
        ("observed('averaging-is-slower')", "2.20 ms", "measured"),
    ],
)  # fmt: skip
def test_values_come_with_their_unit_and_kind(evidence, expression, text, kind):
    assert printed(evidence, expression) == text
    assert evidence.value(expression).kind == kind


def test_labels_and_verdicts_print_without_being_values(evidence):
    assert evidence.printable("rank(0)").text == "rank\u00a00"
    assert evidence.printable("Rank(0)").text == "Rank\u00a00"  # at the start of a sentence
    assert evidence.printable("verdict('whole-peak')").text == "holds"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("2 ** 3", "a power"),
        ("10**(10**9)", "a power"),
        ("tiny_memory.whole.seed ** 2", "a power"),
        ("'a' * 100000000", "arithmetic on text"),
        ("[1] * 1000", "a list"),
        ("(1, 2)", "a list"),
        ("{'a': 1}", "a dict"),
        ("tiny_memory.whole.seed ~ 'x'", "joining text"),
        ("tiny_memory.whole.seed % 2", "a remainder"),
        ("tiny_memory.whole.seed // 2", "a floor division"),
        ("tiny_memory.whole.seed > 1", "a comparison"),
        ("1 < tiny_memory.whole.seed < 3", "a comparison"),
        ("tiny_memory.whole is defined", "a test"),
        ("not tiny_memory", "a condition"),
        ("tiny_memory or tiny_training", "a condition"),
        ("'5' if true else '6'", "a condition"),
        ("tiny_training.averaged.epochs[::2]", "a slice with a step"),
        ("tiny_training.averaged.epochs[tiny_memory.whole.seed]", "only a whole number or a word"),
        ("tiny_memory.whole.__class__", "not a field of a trace"),
        ("tiny_memory.whole['__class__']", "not a field of a trace"),
        ("_self", "not a field of a trace"),
        ("tiny_memory.whole.model_dump()", "not allowed; calls:"),
        ("range(3)", "not allowed; calls:"),
        ("lipsum()", "not allowed; calls:"),
        ("rank(rank(0))", "whole number"),
        ("rank()", "takes one argument"),
        ("rank(0, 1)", "takes one argument"),
        ("rank('0')", "takes a whole number"),
        ("rank(*tiny_memory)", "takes one argument"),
        ("verdict(tiny_memory)", "takes a plain word"),
        ("verdict('no-such-claim')", "no claim 'no-such-claim'"),
        ("tiny_memory.whole.seed|round", "unknown filter 'round'"),
        ("tiny_memory.whole.seed|float", "unknown filter"),
        ("tiny_memory.whole.seed|string", "unknown filter"),
        ("tiny_memory.whole.seed|format", "unknown filter"),
        ("tiny_memory.whole.seed|attr('x')", "unknown filter"),
        ("tiny_memory.whole.seed|percnt", "did you mean 'percent'?"),
        ("tiny_memory.whole.seed|digits", "takes an argument"),
        (
            "tiny_memory.whole.seed + tiny_memory.whole.seed|digits(4)",
            "|digits beside + needs parentheses: (a + b)|digits takes it of the whole",
        ),
        ("tiny_memory.whole.seed|digits(4) * 2", "|digits beside * needs parentheses"),
        ("mean(1 / (2 - tiny_memory.whole.seed|digits(4)))", "|digits beside - needs parentheses"),
        ("tiny_memory.whole.seed|digits(99)", "from 1 to 15"),
        ("tiny_memory.whole.seed|word", "wants a word"),
        ("tiny_memory.whole.model.bytes|percent", "wants a share"),
        ("tiny_memory.whole.ranks|each('_x')", "no '_x'"),
        ("tiny_memory.whole.ranks|each('model_dump')", "no field 'model_dump'"),
        ("true", "not allowed"),
        ("tiny_memory.whole.seed +", "not an expression"),
        ("tiny_memory whole", "unexpected"),
        ("tiny_memory }} {{ tiny_memory", "unexpected"),
        ("tiny_memory.whole.is_surprise", "no field 'is_surprise'"),
        ("tiny_memory.whole.model_fields", "no field 'model_fields'"),
        ("tiny_memory.whole.wrld_size", "did you mean 'world_size'?"),
        ("tiny_memory.hole", "did you mean 'whole'?"),
        ("tiny_mammary.whole", "did you mean 'tiny_memory'?"),
        ("tiny_memory.whole.settings.batchsize", "did you mean 'batch_size'?"),
        ("tiny_memory.whole.ranks[7].rank", "no element 7"),
        ("tiny_memory.whole.ranks['7'].rank", "no element '7'"),
        ("tiny_memory.whole.budget_bytes", "is empty"),
        ("tiny_memory.whole.seed.real", "has no 'real'"),
        ("tiny_memory.whole.status.upper", "has no 'upper'"),
        (
            "tiny_memory.whole.model.bytes + tiny_memory.whole.timing.wall_seconds",
            "cannot be added",
        ),
        ("tiny_memory.whole + 1", "only single values"),
        ("tiny_memory.whole.ranks|largest", "wants one value"),
        ("tiny_memory.whole.seed * 1e999", "beyond what can be calculated with"),
        ("tiny_memory.whole.model.bytes / 0", "divides by zero"),
        ("1 / 0", "divides by zero"),
        ("cited['ddp-paper']", "cites no number"),
        ("x" * 241, "longer than 240"),
        ("(" * 90 + "1" + ")" * 90, "not an expression"),
        ("", "not an expression"),
        ("42", "bare constant"),
        ("'42 GB'", "bare constant"),
        ("2 * 21", "bare constant"),
        ("'holds'", "bare constant"),
        ("verdict('whole-peak')[0:1]", "single values"),
        ("tiny_memory.whole", "a group of fields"),
        ("tiny_training.averaged.timing.step", "|median"),
        ("tiny_training.averaged.ranks|each('rank')", "a list of 2"),
    ],
)
def test_everything_else_is_refused_with_the_reason(evidence, expression, said):
    problem = evidence.unprintable(evidence.evaluate(expression))
    assert problem is not None
    assert said in problem


@pytest.mark.parametrize("name", ["self", "loop", "namespace", "cycler", "joiner", "dict"])
def test_jinjas_own_names_lead_nowhere(evidence, name):
    assert "unknown name" in evidence.evaluate(name).error


def test_the_sandbox_has_no_globals_and_no_tests():
    assert ENVIRONMENT.globals == {}
    assert ENVIRONMENT.tests == {}


@given(st.text("ab.[]()'|+-*/ 019_{}%~<>=,:#\"", max_size=60))
def test_no_text_crashes_the_sandbox(text):
    with suppress(ExpressionError, AbsentError):
        Expression(text).evaluate({"a": 1, "b": 2})


def test_an_expression_is_compiled_and_evaluated_once(book):
    evidence = Evidence(book)
    expression = "tiny_memory.whole.seed"
    assert compiled(expression) is compiled(expression)
    assert evidence.evaluate(expression) is evidence.evaluate(expression)


def test_what_an_evaluation_touched_is_known(evidence):
    found = evidence.evaluate(
        "tiny_training.averaged.epochs[-1].loss * tiny_training.single.settings.num_samples"
    )
    assert found.runs == ("tiny_training.averaged", "tiny_training.single")
    assert found.measured == ("tiny_training.averaged.epochs[4].loss",)


OVER_BOTH = "tiny_memory.whole.model.bytes / tiny_training.single.model.bytes"


def test_arithmetic_over_runs_that_no_machine_has_together_is_an_error(copy):
    copy.add_machine("desk", "tiny_memory")
    copy.trace("tiny_memory").unlink()
    found = Evidence(copy.load()).evaluate(OVER_BOTH)
    assert "mixes two machines (desk, reference-frozen)" in found.error


def test_arithmetic_over_runs_that_only_the_reference_machine_has_together_is_done_there(copy):
    copy.add_machine("desk", "tiny_memory")
    evidence = Evidence(copy.load())
    found = evidence.evaluate(OVER_BOTH)
    assert found.error is None
    assert found.result.machines == {"reference-frozen"}


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
    assert copy.errors() == []


def test_a_run_that_surprises_leaves_the_book_standing(copy):
    copy.change_run("tiny_memory.whole_budget", status="completed", error=None)
    evidence = Evidence(copy.load())
    assert "declared" in evidence.printable("tiny_memory.whole_budget.error.requested_bytes").absent


def test_a_value_that_only_this_machine_lacks_is_no_mistake_but_a_typo_is(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.change_run("tiny_memory.whole", "desk", ranks=[])
    evidence = Evidence(copy.load())
    assert evidence.printable("tiny_memory.whole.ranks[0].num_parameters").absent
    assert evidence.unprintable(evidence.evaluate("tiny_memory.whole.settings.sead"))
    assert evidence.unprintable(evidence.evaluate("tiny_memory.whole.ranks[9].rank"))
