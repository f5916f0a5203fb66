"""Formulas of calculators and claims: their results, on runs too, and how a page gets them."""

import math
import re

import pytest
import yaml
from hypothesis import example, given, reject
from hypothesis import strategies as st

from proofbook.generator.content.claim import Claim
from proofbook.generator.kinds.calculators.formulas import checks, parsed
from proofbook.generator.values import claim_formula
from proofbook.generator.values.claim_formula import printed as rule_of
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.formula import printed
from proofbook.generator.values.value import ExpressionError

NAMES = ("a", "bb", "c_1")
ATOMS = st.sampled_from([*NAMES, "2", "0.5", "1e3", "0"])
FORMULAS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from("+-*/"), inner),
        st.builds("({})".format, inner),
        st.builds("-{}".format, inner.filter(lambda text: not text.startswith("-"))),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner),
    ),
    max_leaves=12,
)
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)
INPUTS = st.fixed_dictionaries(dict.fromkeys(NAMES, NUMBERS))


def by_python(text, inputs):
    """What Python itself makes of the same text; None where it divides by zero."""
    try:
        found = eval(text, {"__builtins__": {}, "min": min, "max": max, **inputs})
    except ZeroDivisionError:
        return None
    return float(found) if math.isfinite(found) else None


def formula_of(text):
    """The formula of a text; one whose typed numbers divide by zero is refused as it is read."""
    try:
        return parsed(text)
    except ExpressionError:
        assert by_python(text, dict.fromkeys(NAMES, 0.7)) is None
        return reject()


@given(FORMULAS, INPUTS)
def test_a_formula_comes_to_what_python_makes_of_the_same_text(text, inputs):
    """`tests/site/test_calculator.py` asks the script of a page."""
    expected, found = by_python(text, inputs), formula_of(text).value(inputs)
    assert found == (None if expected is None else pytest.approx(expected, rel=1e-12))


# Rounded sums and products are not associative: each of these loses a bit without its brackets.
@example("a + c_1 + (c_1 + a)")
@example("a - (bb - c_1)")
@example("a * (bb * c_1)")
@example("a / (bb / c_1)")
@example("-(a * bb) * -(c_1 + a)")
@example("0.30000000000000004 * a")
@given(FORMULAS)
def test_a_formula_written_out_is_the_same_formula(text):
    formula = formula_of(text)
    assert parsed(printed(formula.tree)).tree == formula.tree


def test_brackets_that_change_nothing_are_not_written():
    formula = parsed("((a) + (bb * c_1)) - ((a / bb) / c_1) - (-a)")
    assert printed(formula.tree) == "a + bb * c_1 - a / bb / c_1 - (-a)"
    assert formula.names == ("a", "bb", "c_1")
    assert printed(formula.tree, {"bb": "x.y.bytes"}).startswith("a + x.y.bytes * c_1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a + b % 2", "'b % 2' is not allowed; expressions are made of"),
        ("é + sqrt(b)", "sqrt(…) is not known"),
        ("  a +", "not an expression"),
        ("a.b + 1", "has no 'b'"),
        ("'a' * 2", "arithmetic on text"),
        ("min('a', b)", "only single values"),
        ("1 + 2 * 1e400", "beyond"),
    ],
)
def test_what_is_no_formula_is_refused(text, said):
    with pytest.raises(ExpressionError, match=re.escape(said)):
        parsed(text)


def test_a_calculator_calls_a_law_and_readers_see_it_written_out():
    formula = "ddp_bytes(parameters * value_bytes, 2 + moments)"
    law = parsed(formula)
    assert law.value({"parameters": 10.0, "value_bytes": 4.0, "moments": 2.0}) == 5 * 40
    assert law.readable == "(2 + moments + 1) * (parameters * value_bytes)"
    assert parsed("a * b").readable == "a * b"


def claim(predicted, observed, relation="equals", **fields):
    return Claim(
        id="a-law", says="So.", predicted=predicted, relation=relation, observed=observed, **fields
    )


@pytest.mark.parametrize(
    ("predicted", "observed", "relation", "said"),
    [
        ("2 * a.b.model.bytes / a.b.world_size", "a.b.ranks[0].memory.peak_bytes", "equals",
         "`peak = 2 × model bytes / ranks`"),
        ("ring_bytes(a.b.settings.gradient_bytes, a.b.world_size)",
         "a.b.ranks | each('measures.sent_bytes') | largest", "equals",
         "`largest sent bytes = 2 × (ranks − 1) / ranks × gradient bytes`"),
        ("a.b.model.bytes", "a.b.ranks | each('collectives.all_reduce.bytes')", "equals",
         "`bytes of all_reduce on each rank = model bytes`"),
        ("a.old.ranks[0].memory.peak_bytes", "a.new.ranks[0].memory.peak_bytes", "below",
         "`peak of new < peak of old`"),
        ("a.b.ranks[1].memory.peak_bytes", "a.b.ranks[0].memory.peak_bytes", "above",
         "`peak of rank 0 > peak of rank 1`"),
        ("1", "a.b.ranks[0].measures.num_wrong_values", "equals", "`wrong values = 1`"),
        # What no short name can say, or what two have, is left to the author.
        ("a.b.epochs[0].loss", "a.b.epochs[-1].loss", "below", None),
        ("a.b.settings.a", "a.b.stages['x'].b", "equals", None),
        ("a.b.settings.sent_3145728_bytes", "a.b.ranks[0].memory.peak_bytes", "equals", None),
    ],
)  # fmt: skip
def test_a_rule_prints_in_words_for_what_it_reads(predicted, observed, relation, said):
    assert rule_of(claim(predicted, observed, relation)) == said


def test_a_tolerated_distance_is_said_and_a_typed_formula_stands():
    rule = ("2 * a.b.model.bytes", "a.b.ranks[0].memory.peak_bytes")
    assert rule_of(claim(*rule, tolerance={"relative": 0.05})) == "`peak ≈ 2 × model bytes`"
    assert rule_of(claim(*rule, tolerance={"relative": 1e-9})) == "`peak = 2 × model bytes`"
    assert claim_formula.formula_of(claim(*rule, formula="Twice.")) == "Twice."


# --- formulas on runs


def peaks(book):
    """The peak that a calculator of the frozen book gives, on the runs that it is checked on."""
    (topic,) = (topic for topic in book.topics if topic.id == "averaging")
    calculator = topic.lessons["cost"].model.calculator
    return checks(calculator.outputs[0], calculator, Evidence(book))


def test_a_formula_on_a_run_is_what_the_runs_own_numbers_give(book):
    found = peaks(book)
    whole, halves = (book.run(f"tiny_memory.{run}") for run in ("whole", "halves"))
    assert [one.run for one in found] == ["tiny_memory.whole", "tiny_memory.halves"]
    assert found[0].by_formula.number == whole.model.bytes * halves.world_size
    assert found[0].measured.number == whole.ranks[0].memory.peak_bytes
    share = found[0].by_formula.number / found[0].measured.number - 1
    assert found[0].off.number == pytest.approx(share)


def test_a_check_by_law_is_compared_with_what_the_law_observes(copy, book):
    file = copy.content / "topics" / "averaging" / "cost.yml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    size, copies, *_ = document["calculator"]["inputs"]
    size["on_run"], copies["on_run"] = "run.model.bytes", "2 * run.world_size"
    document["calculator"]["outputs"][0]["checked_on"][0] = "whole-peak"
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    assert copy.errors() == []
    (by_law, other), (by_hand, _) = peaks(copy.load()), peaks(book)
    assert (by_law.run, by_law.measured.number) == (by_hand.run, by_hand.measured.number)
    assert by_law.by_formula.number == by_hand.by_formula.number
    assert by_law.by_formula.formula.startswith("tiny_memory.whole.model.bytes * (2 *")
    assert other.run == "tiny_memory.halves"  # whose own `given` goes before `on_run`
