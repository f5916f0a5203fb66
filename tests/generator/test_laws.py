"""Laws over several runs: one rule, a verdict a run, ids that stay, mistakes at their places."""

import pytest

from generator.evidence.evaluation import Evidence

CLAIMS, QUIZ = "claims/tiny_memory.yml", "topics/averaging/quiz.yml"
LAW = """\
  - id: ends-as-declared
    for: [tiny_memory.whole_budget, tiny_memory.halves_budget]
    says: "Under its budget, {{ run.world_size }} ranks end as declared."
    predicted: "'deadlocked'"
    relation: differs
    observed: run.status
"""
WHOLE, HALVES = (f"ends-as-declared@tiny_memory.{run}_budget" for run in ("whole", "halves"))
PAIRS = """\
  - id: peaks-below
    kind: observation
    for:
      - {run: tiny_memory.halves, other: tiny_memory.whole, called: Halves}
    says: "{{ called }} need less than {{ other.ranks[0].memory.peak_bytes }}."
    predicted: largest(each(other.ranks, 'memory.peak_bytes'))
    relation: below
    observed: largest(each(run.ranks, 'memory.peak_bytes'))
    showed:
      holds: "{{ called }} needed {{ observed }}, less than {{ predicted }}."
      does_not_hold: They needed {{ observed }}.
"""


@pytest.fixture
def lawful(copy):
    copy.append(CLAIMS, LAW)
    return copy


def test_a_law_is_judged_once_a_run_and_its_texts_name_that_run(lawful):
    book = lawful.load()
    evidence = Evidence(book)
    assert lawful.errors() == []
    assert book.laws.of_law["ends-as-declared"] == (WHOLE, HALVES)
    assert [evidence.outcome(one).verdict for one in (WHOLE, HALVES)] == ["holds", "holds"]
    assert evidence.outcome(WHOLE).runs == ("tiny_memory.whole_budget",)
    assert evidence.outcome(HALVES).observed.formula == "tiny_memory.halves_budget.status"
    ranks = [book.run(f"tiny_memory.{run}_budget").world_size for run in ("whole", "halves")]
    said = [evidence.plain(book.claims[one].says) for one in (WHOLE, HALVES)]
    assert said == [f"Under its budget, {num} ranks end as declared." for num in ranks]


def test_two_runs_take_part_and_texts_print_both_sides(copy):
    copy.append(CLAIMS, PAIRS)
    assert copy.errors() == []
    evidence = Evidence(copy.load())
    name = "peaks-below@tiny_memory.halves"
    outcome = evidence.outcome(name)
    assert outcome.verdict == "holds"
    said = evidence.plain(evidence.sentence(name))
    wanted = f"Halves needed {outcome.observed}, less than {outcome.predicted}."
    assert said.split() == wanted.split()


def test_a_run_may_have_a_sentence_of_its_own(copy):
    own = "{run: tiny_memory.halves_budget, says: The halves complete.}"
    copy.append(CLAIMS, LAW.replace("tiny_memory.halves_budget]", f"{own}]", 1))
    book = copy.load()
    assert book.claims[HALVES].says == "The halves complete."
    assert "tiny_memory.whole_budget.world_size" in book.claims[WHOLE].says


@pytest.mark.parametrize(
    ("old", "new", "at", "said"),
    [
        ("for: [tiny_memory.whole_budget", "for: [tiny_memory.gone", "tiny_memory.gone",
         "tiny_memory has no run 'gone'"),
        ("for: [", "for: [tiny_memory.whole_budget, ", "tiny_memory.whole_budget, tiny_memory.hal",
         "names 'tiny_memory.whole_budget' already"),
        ("id: ends-as-declared", "id: whole-peak", "whole-peak\n    for", "duplicate claim id"),
        ("run.world_size", "other.world_size", "other.world_size", "unknown name 'other'"),
        ("run.world_size", "called", "called", "has no called:"),
        ("observed: run.status", "observed: run.state", "run.state", "on tiny_memory.whole_budget"),
    ],
)  # fmt: skip
def test_each_mistake_in_a_law_is_one_line_at_its_place(copy, old, new, at, said):
    assert old in LAW
    copy.append(CLAIMS, LAW.replace(old, new, 1))
    before = (copy.content / CLAIMS).read_text().rpartition(at)[0].split("\n")
    place = f"content/{CLAIMS}:{len(before)}:{len(before[-1]) + 1}: "
    errors = copy.errors()
    assert any(error.startswith(place) and said in error for error in errors), (place, errors)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ends-as-declared", f"is judged on 2 runs; name one of them: '{WHOLE}'"),
        ("ends-as-declared@tiny_memory.whole", "is not judged on 'tiny_memory.whole'; did you"),
        ("ends-as-declare", "no claim 'ends-as-declare'; did you mean"),
    ],
)
def test_a_question_names_a_law_with_its_run(lawful, name, said):
    lawful.edit(QUIZ, "claim: replicas-drift}", f"claim: {name}}}")
    assert any(f"content/{QUIZ}:" in error and said in error for error in lawful.errors())
