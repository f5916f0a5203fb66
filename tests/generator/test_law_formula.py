"""A claim's formula as printed from its expressions, and laws wherever they are called by name."""

import pytest

from generator.content.claim import Claim
from generator.evidence.calculator import parsed
from generator.evidence.formula import FormulaError
from generator.evidence.law_formula import printed, shown


def claim(predicted, observed, relation="equals", **fields):
    return Claim(
        id="a-law", says="So.", predicted=predicted, relation=relation, observed=observed, **fields
    )


@pytest.mark.parametrize(
    ("predicted", "observed", "relation", "said"),
    [
        ("2 * run.model.bytes / run.world_size", "run.ranks[0].memory.peak_bytes", "equals",
         "`peak = 2 × model bytes / ranks`"),
        ("run.settings.num_layers", "a.b.ranks[0].collectives['all_reduce'].count", "at_most",
         "`calls of all_reduce ≤ layers`"),
        ("ring_bytes(a.b.settings.gradient_bytes, a.b.world_size)",
         "a.b.ranks | each('measures.sent_bytes') | largest", "equals",
         "`largest sent bytes = 2 × (ranks − 1) / ranks × gradient bytes`"),
        ("run.model.num_parameters", "total(each(run.ranks, 'num_parameters'))", "equals",
         "`Σ parameters per rank = parameters`"),
        ("run.model.num_parameters", "run.ranks | each('num_parameters') | smallest", "above",
         "`fewest parameters per rank > parameters`"),
        ("run.model.bytes", "run.ranks | each('collectives.all_reduce.bytes')", "equals",
         "`bytes of all_reduce on each rank = model bytes`"),
        ("run.model.num_parameters", "run.ranks | each('num_parameters')", "equals",
         "`parameters on each rank = parameters`"),
        # What no short name can say is left to the author.
        ("1", "run.ranks[0].memory.peak_bytes", "equals", None),
        ("other.ranks[0].memory.peak_bytes", "run.ranks[0].memory.peak_bytes", "below", None),
        ("run.settings.a", "run.prediction['x'].facts.y", "equals", None),
        ("run.settings.sent_3145728_bytes", "run.ranks[0].memory.peak_bytes", "equals", None),
        ("run.timing.step", "other.timing.step", "faster", None),
        ("run.expected_status", "run.status", "equals", None),
    ],
)  # fmt: skip
def test_a_rule_prints_in_words_for_what_it_reads(predicted, observed, relation, said):
    assert printed(claim(predicted, observed, relation)) == said


def test_a_tolerated_distance_is_said_and_a_typed_formula_stands():
    rule = ("2 * run.model.bytes", "run.ranks[0].memory.peak_bytes")
    assert printed(claim(*rule, tolerance={"relative": 0.05})) == "`peak ≈ 2 × model bytes`"
    assert printed(claim(*rule, tolerance={"relative": 1e-9})) == "`peak = 2 × model bytes`"
    assert shown(claim(*rule, formula="Twice.")) == "Twice."


def test_a_symbol_in_words_looks_as_in_the_formula_and_a_word_stays_one():
    said = "`p·a` on rank r, for F seconds on a rank's {{ x.n }} stages"
    asked = claim("1", "run.x", formula=said)
    assert shown(asked) == "`p·a` on rank `r`, for `F` seconds on a rank's {{ x.n }} stages"


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        ("mean(each(tiny_memory.halves.ranks, 'memory.peak_bytes'))",
         "tiny_memory.halves.ranks | each('memory.peak_bytes') | mean"),
        ("percent(tiny_training.single.epochs[-1].accuracy)",
         "tiny_training.single.epochs[-1].accuracy | percent"),
        ("digits(tiny_training.single.epochs[-1].loss, 2)",
         "tiny_training.single.epochs[-1].loss | digits(2)"),
        ("ddp_bytes(tiny_memory.whole.model.bytes, 2)", "(2 + 1) * tiny_memory.whole.model.bytes"),
    ],
)  # fmt: skip
def test_filters_and_laws_read_as_functions(evidence, asked, same):
    found, wanted = evidence.value(asked), evidence.value(same)
    assert (str(found), found.number, found.leaves) == (str(wanted), wanted.number, wanted.leaves)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("ring_bytes(1)", "ring_bytes(…) takes 2 arguments"),
        ("mean()", "mean(…) takes 1 argument"),
        ("digits(tiny_memory.whole.world_size)", "digits(…) takes 2 arguments"),
        ("each(tiny_memory.whole.ranks, tiny_memory)", "each takes a plain word or number"),
        ("mean(values=1)", "takes no named arguments"),
        ("ring_bytes('a', 2)", "arithmetic on text"),
        ("mean", "unknown name 'mean'"),
        ("ring_byte(1, 2)", "is not allowed; calls:"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(evidence, expression, said):
    assert said in evidence.evaluate(expression).error


def test_a_calculator_calls_a_law_and_readers_see_it_written_out():
    formula = "ddp_bytes(parameters * value_bytes, 2 + moments)"
    law = parsed(formula)
    given = {"parameters": 10.0, "value_bytes": 4.0, "moments": 2.0}
    assert law.value(given) == 5 * 40
    assert law.names == ("moments", "parameters", "value_bytes")
    assert law.readable(formula) == "(3 + moments) * (parameters * value_bytes)"
    assert law.readable("a * b") == "a * b"
    with pytest.raises(FormulaError, match="takes payload_bytes, ranks"):
        parsed("ring_bytes(a)")
