"""Sentences that say more than their rule: flagged at the word, unless the author says why."""

import pytest

CLAIMS, QUIZ = "claims/tiny_memory.yml", "topics/averaging/quiz.yml"
RANK = "tiny_memory.halves.ranks[0].num_parameters"
EACH = "tiny_memory.halves.ranks | each('num_parameters')"


def added(copy, says, observed=RANK, more=""):
    copy.append(CLAIMS, (
        f"  - id: holds-some\n    says: {says}\n    predicted: \"0\"\n"
        "    constant: no parameter\n    relation: above\n"
        f"    observed: {observed}\n{more}"
    ))  # fmt: skip
    copy.edit(QUIZ, "claim: replicas-drift}", "claim: holds-some}")
    return [one for one in copy.errors() if CLAIMS in one]


@pytest.mark.parametrize(
    "word", ["every", "All", "each", "never", "only", "nothing else", "always"]
)
def test_a_word_for_all_needs_a_rule_for_all(copy, word):
    (error,) = added(copy, f"Of the ranks {word} one holds parameters.")
    text = (copy.content / CLAIMS).read_text()
    before = text[: text.index(f"{word} one holds")].split("\n")
    assert error.startswith(f"content/{CLAIMS}:{len(before)}:{len(before[-1]) + 1}: says {word!r}")
    assert "quantifier: each" in error


@pytest.mark.parametrize(
    ("says", "observed", "more"),
    [
        ("Every rank holds parameters.", EACH, "    quantifier: each\n"),
        ("Every rank holds parameters.", f"{EACH} | smallest", ""),
        ("Parameters pass `every` all-reduce.", RANK, ""),
        ("Every layer has parameters.", "tiny_memory.whole.ranks[0].num_parameters", ""),
        ("Every layer has some.", RANK, "    accepts: {quantifier: a sum over the layers}\n"),
        ("It holds some, because layers have some.", RANK, "    cause: whole-peak\n"),
        ("It holds some, because layers have some.", RANK, "    accepts: {because: by design}\n"),
    ],
)
def test_what_a_rule_bears_out_is_not_flagged(copy, says, observed, more):
    assert added(copy, says, observed, more) == []


@pytest.mark.parametrize(
    ("says", "more", "said"),
    [
        ("It holds some, because layers have some.", "", "gives a reason"),
        ("It holds some, because so.", "    cause: whole-peek\n", "no claim 'whole-peek'"),
        ("It holds some, because so.", "    cause: holds-some\n", "no reason of its own"),
        ("It holds some.", "    accepts: {quantifier: why not}\n", "delete this exception"),
    ],
)
def test_a_reason_and_an_exception_have_to_be_there(copy, says, more, said):
    (error,) = added(copy, says, more=more)
    assert said in error
