"""Comparisons in lessons: flagged at the word, unless a claim, a ratio or a source backs them."""

import pytest

from generator.checks.comparison_checks import unbacked
from generator.evidence.evaluation import Evidence

LEARN, WHY = "topics/averaging/learn.yml", "topics/averaging/why.yml"
TAKEAWAY = "takeaway: Averaging shares rows, not models."


def stated(copy, sentence):
    """The errors of a page whose takeaway is this sentence."""
    copy.edit(WHY, TAKEAWAY, f"takeaway: {sentence}")
    return [one for one in copy.errors() if WHY in one]


@pytest.mark.parametrize(
    "word",
    ["faster", "less", "fewer", "hardly", "nearly", "most of", "as much as", "lower", "exceeds"],
)
def test_a_comparison_with_nothing_behind_it_is_an_error_at_its_word(copy, word):
    (error,) = stated(copy, f"This is {word} that.")
    text = (copy.content / WHY).read_text()
    before = text[: text.index(f"{word} that")].split("\n")
    place = f"content/{WHY}:{len(before)}:{len(before[-1]) + 1}"
    assert error.startswith(f"{place}: compares ({word!r}), with nothing behind it")
    assert "{{ holds('…') }}" in error


@pytest.mark.parametrize(
    "sentence",
    [
        "The whole needs more{{ holds('whole-needs-more') }}.",
        "Two ranks are more than one{{ by_definition }}.",
        "It took {{ (median(tiny_training.averaged.timing.step) / "
        "median(tiny_training.single.timing.step)) | times }} as much as one process.",
        "It is slower, as [they say](https://example.org).",
        "Is it faster?",
        "Whether it is faster.",
        "There is no longer a rank that waits.",
    ],
)
def test_what_backs_a_comparison_and_what_compares_nothing_may_stand(copy, sentence):
    assert stated(copy, sentence) == []


def test_a_claim_of_the_block_backs_its_sentences(copy):
    purpose = "{{ tiny_training.averaged.settings.num_rows }}."
    copy.edit(
        WHY, purpose, "{{ tiny_training.averaged.settings.num_rows }}, fewer than one device."
    )
    assert copy.errors() == []
    copy.edit(WHY, "  claims: [averaging-is-equal]\n", "")
    assert any("compares ('fewer')" in error for error in copy.errors())


def test_what_backs_one_sentence_does_not_back_the_next():
    first = "More{{ by_definition }}."
    assert [word for _, word in unbacked(f"{first} And it is faster. {first}")] == ["faster"]


def test_a_point_inside_an_expression_ends_no_sentence():
    assert list(unbacked("It took {{ (a.b. Of / d. Ef) | times }} as much as that.")) == []


def test_a_sentence_that_leans_on_a_claim_that_does_not_hold_is_an_error(copy):
    copy.edit("claims/tiny_training.yml", "relation: slower", "relation: faster")
    errors = stated(copy, "It takes longer{{ holds('averaging-is-slower') }}.")
    assert "leans on averaging-is-slower, which does not hold" in errors[-1]


def test_on_a_machine_where_the_claim_does_not_hold_the_sentence_says_so(copy):
    text = "It takes longer{{ holds('averaging-is-slower') }}, by definition{{ by_definition }}."
    assert Evidence(copy.load()).plain(text) == "It takes longer, by definition."
    copy.edit("claims/tiny_training.yml", "relation: slower", "relation: faster")
    said = Evidence(copy.load()).plain(text)
    assert said == "It takes longer (does not hold), by definition."
