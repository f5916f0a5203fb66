"""What a claim may not rest on, or leave unsaid: refused where it is written, with a reason."""

import pytest

from proofbook.generator.content.claim import NumberTolerance

CLAIMS = "claims/tiny_memory.yml"


def test_a_claim_over_different_numbers_of_ranks_says_what_is_fixed(copy):
    copy.edit(CLAIMS, "fixed: the batch, ", "")
    found = [one for one in copy.errors() if "different numbers of ranks" in one]
    assert len(found) == 1
    assert "regime: {fixed: the global batch}" in found[0]
    name = "  - id: whole-needs-more\n"
    copy.edit(CLAIMS, name, f"{name}    regime: {{fixed: the model}}\n")
    assert not any("different numbers of ranks" in one for one in copy.errors())


def test_a_claim_over_runs_without_a_recorded_dtype_states_it(copy):
    copy.change_run("tiny_memory.halves_budget", model=None)
    (error,) = [one for one in copy.errors() if "has recorded no dtype" in one]
    assert "tiny_memory.halves_budget" in error
    copy.edit(CLAIMS, "regime: {", "regime: {dtype: float32, ")
    assert not any("recorded no dtype" in one for one in copy.errors())


def test_a_tolerance_is_given_in_one_way_and_epsilons_with_their_dtype():
    assert NumberTolerance(epsilons=4, dtype="float32").slack(2.0) == 2 * 4 * 2.0**-23
    for given in ({}, {"relative": 0.1, "absolute": 1}, {"epsilons": 4}, {"dtype": "float32"}):
        with pytest.raises(ValueError, match=r"a key is missing|give one of|give both"):
            NumberTolerance(**given)
