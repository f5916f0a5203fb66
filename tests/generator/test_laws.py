"""Laws over several runs: one rule, a verdict a run, ids that stay, mistakes at their places."""

import pytest

from proofbook.generator.printing.folio import sentence
from proofbook.generator.values.evaluation import Evidence

CLAIMS = "claims/tiny_memory.yml"
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
    assert book.claim_index.of_claim["ends-as-declared"] == (WHOLE, HALVES)
    assert [evidence.judged(one).verdict for one in (WHOLE, HALVES)] == ["holds", "holds"]
    assert evidence.judged(WHOLE).runs == ("tiny_memory.whole_budget",)
    assert evidence.judged(HALVES).observed.formula == "tiny_memory.halves_budget.status"
    ranks = [book.run(f"tiny_memory.{run}_budget").world_size for run in ("whole", "halves")]
    said = [evidence.plain(book.claims[one].says) for one in (WHOLE, HALVES)]
    assert said == [f"Under its budget, {num} ranks end as declared." for num in ranks]


def test_two_runs_take_part_and_texts_print_both_sides(copy):
    copy.append(CLAIMS, PAIRS)
    assert copy.errors() == []
    evidence = Evidence(copy.load())
    name = "peaks-below@tiny_memory.halves"
    outcome = evidence.judged(name)
    assert outcome.verdict == "holds"
    said = evidence.plain(sentence(outcome))
    wanted = f"Halves needed {outcome.observed}, less than {outcome.predicted}."
    assert said.split() == wanted.split()


def test_a_run_may_have_a_sentence_of_its_own(copy):
    own = "{run: tiny_memory.halves_budget, says: The halves complete.}"
    copy.append(CLAIMS, LAW.replace("tiny_memory.halves_budget]", f"{own}]", 1))
    book = copy.load()
    assert book.claims[HALVES].says == "The halves complete."
    assert "tiny_memory.whole_budget.world_size" in book.claims[WHOLE].says
