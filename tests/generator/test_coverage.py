"""What each misconception still lacks: a prediction, a run, a question asked again later."""

import pytest

from generator.checks.coverage import coverage, lacks
from generator.evidence.evaluation import Evidence

NEW = """\
  - id: ranks-share-memory
    belief: Ranks share their memory.
    {}
"""


def lacking(copy):
    return lacks(Evidence(copy.load()))


def test_a_belief_that_only_a_source_speaks_against_lacks_a_run(copy):
    assert lacking(copy) == [
        "misconception loss-decides lacks a run (refuted_by: a claim that holds)"
    ]


def test_a_belief_that_nothing_meets_is_told_in_one_line(copy):
    copy.append("misconceptions.yml", NEW.format("source: ddp-paper"))
    (said,) = [line for line in lacking(copy) if "ranks-share-memory" in line]
    for wanted in ("a prediction (", "a run (", "a delayed question ("):
        assert wanted in said


def test_a_claim_that_does_not_hold_refutes_nothing(copy):
    copy.append("misconceptions.yml", NEW.format("refuted_by: averaging-is-slower"))
    assert "lacks a prediction (" in lacking(copy)[-1]
    assert "a run (" not in lacking(copy)[-1]
    copy.edit("claims/tiny_training.yml", "relation: slower", "relation: faster")
    assert "a run (" in lacking(copy)[-1]


FRESH = """\
  - id: fresh
    stem: Do ranks share their memory?
    options:
      - text: "No"
        why: Each is a process of its own.
        right_if: {claim: replicas-drift}
      - text: "Yes"
        why: Each is a process of its own.
        misconception: ranks-share-memory
"""


@pytest.mark.parametrize(
    ("file", "old", "new", "is_prediction"),
    [
        ("averaging/trace.yml", "commit: is-it-equal", "commit: fresh", True),
        ("averaging/learn.yml", "guess: without-averaging", "guess: fresh", True),
        ("averaging/try.yml", "item: say-the-bytes", "item: fresh", True),
        ("averaging/trace.yml", "quiz: [is-it-equal", "quiz: [fresh", False),
        ("averaging/learn.yml", "checks: [is-it-equal", "checks: [fresh", False),
        ("asking/challenge.yml", "item: which-hold", "item: fresh", False),
    ],
)
def test_only_what_is_asked_before_a_page_tells_is_a_prediction(
    copy, file, old, new, is_prediction
):
    copy.append("misconceptions.yml", NEW.format("source: ddp-paper"))
    copy.append(f"topics/{file.partition('/')[0]}/quiz.yml", FRESH)
    before = coverage(Evidence(copy.load()))["ranks-share-memory"]
    assert before.predictions == ()
    copy.edit(f"topics/{file}", old, new)
    met = coverage(Evidence(copy.load()))["ranks-share-memory"]
    assert met.predictions == (("fresh",) if is_prediction else ())
    assert met.delayed == ("fresh",)


def test_a_problem_that_asks_to_predict_is_a_prediction(copy):
    assert "how-slow" in coverage(Evidence(copy.load()))["more-ranks-faster"].predictions
    copy.edit("topics/asking/challenge.yml", "item: how-slow", "item: what-peak")
    assert "how-slow" not in coverage(Evidence(copy.load()))["more-ranks-faster"].predictions


def test_what_a_recall_page_leaves_out_comes_back_no_more(copy):
    assert "what-peak" in coverage(Evidence(copy.load()))["copies-save-memory"].delayed
    copy.edit("topics/asking/recall.yml", "leave_out: [", "leave_out: [what-peak, ")
    assert "what-peak" not in coverage(Evidence(copy.load()))["copies-save-memory"].delayed


def test_an_item_that_no_page_asks_is_told(copy):
    text = (copy.content / "topics" / "sharding" / "quiz.yml").read_text()
    more = copy.content / "topics" / "sharding" / "quiz-more.yml"
    more.write_text(text.replace("who-fits", "who-fits-again"))
    assert "item who-fits-again is asked on no page" in lacking(copy)
