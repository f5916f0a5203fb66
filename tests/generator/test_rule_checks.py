"""What a claim may not rest on, or leave unsaid: refused where it is written, with a reason."""

import pytest

from generator.content.claim import Tolerance

CLAIMS, QUIZ = "claims/tiny_memory.yml", "topics/averaging/quiz.yml"
PEAK = "tiny_memory.whole.ranks[0].memory.peak_bytes"
TWICE = "2 * tiny_memory.whole.model.bytes"
TIME = "tiny_training.single.timing"
STEP = f"{TIME}.step | median"


@pytest.mark.parametrize(
    ("predicted", "relation", "observed", "said"),
    [
        ("epsilon('1')", "below", PEAK, "epsilon(…) wants one of float64, float32"),
        (f"{TIME}.wall_seconds", "above", STEP, f"a law reads the measured time {TIME}.wall"),
        ('"0"', "above", STEP, f"reads the measured time {TIME}.step;"),
    ],
)  # fmt: skip
def test_a_rule_that_rests_on_a_time_is_refused(copy, predicted, relation, observed, said):
    rule = f"predicted: {predicted}\n    relation: {relation}\n    observed: {observed}"
    copy.append(CLAIMS, f"  - id: an-addition\n    says: It needs bytes.\n    {rule}\n")
    copy.edit(QUIZ, "claim: replicas-drift}", "claim: an-addition}")
    (error,) = [one for one in copy.errors() if CLAIMS in one]
    assert said in error


def test_a_claim_over_different_numbers_of_ranks_says_what_is_fixed(copy):
    copy.edit(CLAIMS, "fixed: the batch, ", "")
    found = [one for one in copy.errors() if "different numbers of ranks" in one]
    assert len(found) == 1
    assert "regime: {fixed: the global batch}" in found[0]
    copy.edit(CLAIMS, "  - id: whole-needs-more\n", "  - id: whole-needs-more\n"
              "    regime: {fixed: the model}\n")  # fmt: skip
    assert not any("different numbers of ranks" in one for one in copy.errors())


def test_a_claim_over_runs_without_a_recorded_dtype_states_it(copy):
    copy.change_run("tiny_memory.halves_budget", model=None)
    (error,) = [one for one in copy.errors() if "has recorded no dtype" in one]
    assert "tiny_memory.halves_budget" in error
    copy.edit(CLAIMS, "regime: {", "regime: {dtype: float32, ")
    assert not any("recorded no dtype" in one for one in copy.errors())


def test_a_tolerance_is_given_in_one_way_and_epsilons_with_their_dtype():
    assert Tolerance(epsilons=4, dtype="float32").slack(2.0) == 2 * 4 * 2.0**-23
    for given in ({}, {"relative": 0.1, "absolute": 1}, {"epsilons": 4}, {"dtype": "float32"}):
        with pytest.raises(ValueError, match=r"one of the three|give both"):
            Tolerance(**given)
