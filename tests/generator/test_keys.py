"""Keys follow from runs: which answer is right, what a slip gives, and when no key can be."""

from dataclasses import replace

import pytest

from proofbook.generator.items.kinds import kind_of
from proofbook.generator.items.kinds.kind import OPEN
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.value import numeric

ITEMS = "topics/asking/quiz.yml"
AS_RECORDED = """\
  - id: as-recorded
    kind: order
    stem: What comes after what?
    run: tiny_training.averaged
    pieces:
      - {text: training, why: It needs rows., recorded: train}
      - {text: scaling, why: It needs rows., recorded: scale}
      - {text: loading, why: It comes first., recorded: load}
"""


def key(book, name):
    return kind(book, name).key


def kind(book, name):
    return kind_of(book.items[name], Evidence(book))


def test_the_key_of_each_kind_is_what_the_runs_give(book):
    assert numeric(key(book, "what-peak").value) == 164_000
    assert [numeric(slip) for slip in key(book, "what-peak").slips] == [80_000]
    assert [numeric(end) for end in kind(book, "how-slow").ends] == pytest.approx([12e-5, 12e-3])
    assert key(book, "how-many-bytes").right == (0,)
    assert key(book, "which-hold").right == (0, 1)
    assert key(book, "who-needs-most").right == (2, 1, 0)
    assert key(book, "what-belongs").right == (0, 1, 2)
    assert key(book, "where-is-the-fault").right == (2,)
    assert numeric(key(book, "what-accuracy").value) == 0.28


def test_an_order_is_the_recorded_one_or_descends(copy):
    copy.append(ITEMS, AS_RECORDED)
    load, train = copy.recorded("tiny_training.averaged")["stages"]
    copy.change_run("tiny_training.averaged", stages=[load, {**train, "name": "scale"}, train])
    copy.edit(ITEMS, "    ends: [needs", "    descending: true\n    ends: [needs")
    assert key(copy.load(), "as-recorded").right == (2, 1, 0)
    assert key(copy.load(), "who-needs-most").right == (0, 1, 2)
    copy.edit(ITEMS, "recorded: train", "recorded: training")
    (error,) = copy.errors()
    assert "recorded no stage or step 'training'; did you mean 'train'?" in error
    copy.edit(ITEMS, "recorded: training", "recorded: load")
    (error,) = copy.errors()
    assert error.endswith("another piece is 'load' already; no order")


def test_what_clashes_on_another_machine_only_leaves_the_question_open(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")

    def peaks_at(size):
        ranks = copy.recorded("tiny_memory.whole", "desk")["ranks"]
        ranks[0]["memory"]["peak_bytes"] = size
        copy.change_run("tiny_memory.whole", "desk", ranks=ranks)

    peaks_at(84_000)  # as the first part does
    settings = copy.recorded("tiny_training.averaged", "desk")["settings"]
    copy.change_run("tiny_training.averaged", "desk", settings={**settings, "num_epochs": 2})
    assert copy.errors() == []
    assert key(copy.load(), "who-needs-most") is OPEN
    assert key(copy.load(), "what-belongs") is OPEN
    peaks_at(80_000)  # as the slip says
    timing = copy.recorded("tiny_training.averaged", "desk")["timing"]
    timing["step"]["samples"] = [0.1] * 5  # beyond the slider
    copy.change_run("tiny_training.averaged", "desk", timing=timing)
    assert key(copy.load(), "what-peak").slips == (None,)
    assert kind(copy.load(), "how-slow").ends is None
    assert numeric(key(copy.load(), "how-slow").value) == 0.1
    assert copy.errors() == []


def test_an_option_that_no_run_decides_leaves_a_question_of_several_open(book, monkeypatch):
    evidence = Evidence(book)
    judged = evidence.judged
    monkeypatch.setattr(
        evidence, "judged", lambda name: replace(judged(name), verdict="no_evidence")
    )
    assert kind_of(book.items["which-hold"], evidence).key is OPEN


def test_the_order_shown_is_never_the_right_one(book):
    evidence = Evidence(book)
    for item in book.items.values():
        order = kind_of(item, evidence).page_order()
        if item.kind in ("order", "match"):
            assert order != kind_of(item, evidence).key.right
            assert sorted(order) == list(range(3))
        if item.kind == "faulty_line":
            assert order == (0, 1, 2)


def test_what_the_reference_machine_decides_is_checked_on_another_machine_too(copy):
    peak = "tiny_memory.{}.ranks[0].memory.peak_bytes"
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.edit(ITEMS, f"by: {peak.format('halves')}", f"by: {peak.format('whole')}")
    copy.edit(ITEMS, "gives: tiny_memory.whole.model.bytes", f"gives: {peak.format('whole')}")
    told = " ".join(copy.errors())
    assert "have the same value; no order" in told
    assert "a reader's mistake could not be told" in told
