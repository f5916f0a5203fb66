"""Variants of a question: the same on other runs, with a key of its own, or a mistake."""

from __future__ import annotations

import json
import re

import pytest

from generator.checks import content_checks
from generator.content import book as books
from generator.content.quiz import Variant
from generator.evidence.evaluation import Evidence
from generator.items.item_statistics import report
from generator.items.keys import key_of
from generator.items.readers import Export
from generator.items.variants import answerable, mistakes, variants_of
from generator.pages.press import Press
from tests.conftest import ROOT

TRY = "topics/averaging/quiz-try.yml"
MAPPED = "{tiny_memory.halves: tiny_memory.whole}"
RECALL = "topics/averaging/recall.md"


def _item(evidence, name="say-the-peak"):
    found = [topic.items[name] for topic in evidence.book.topics if name in topic.items]
    return found[0]


def test_a_variant_reads_other_runs_in_all_of_its_parts(evidence):
    item = _item(evidence)
    (variant,) = variants_of(item, evidence)
    assert evidence.plain(item.stem) == (
        "A model of 78.1 KiB trains on 2 ranks. Where does the first one peak?"
    )
    assert evidence.plain(variant.stem) == (
        "A model of 78.1 KiB trains on 1 ranks. Where does the first one peak?"
    )
    peaks = [evidence.book.run(f"tiny_memory.{run}") for run in ("halves", "whole")]
    keys = [key_of(one, evidence).value for one in (item, variant)]
    assert [key.number for key in keys] == [run.ranks[0].memory.peak_bytes for run in peaks]
    assert keys[0].number != keys[1].number


def test_recall_alone_asks_variants_and_keeps_answers_under_the_item(book):
    press = Press()
    pages = {path: content.decode() for path, content in press.printed(book).items()}
    (path,) = re.findall(r'data-variants="../../([^"]+)"', pages[RECALL])
    apart = press.assets[path].decode()
    html = json.loads(apart.removeprefix("proofbook.variants(").removesuffix(");\n"))
    (own,) = re.findall(r'<form [^>]*data-item="say-the-peak"[^>]*>', pages[RECALL])
    (variant,) = re.findall(r'<form [^>]*data-item="say-the-peak"[^>]*>', html)
    digests = [re.search(r'data-digest="(\w+)"', form)[1] for form in (own, variant)]
    assert digests[0] == digests[1]
    assert 'data-variant="1"' in variant
    assert 'id="item-say-the-peak-variant-1"' in html
    assert 'data-variant="' not in "".join(pages.values())


REFUSED = {
    "another name": (MAPPED, "{tiny_memory.halves: tiny_memory.hole}", "no run 'tiny_memory.hole'"),
    "another claim": (
        "- runs: {tiny_memory.halves: tiny_memory.whole}",
        "- claims: {halves-complete: halves-compleat}",
        "no claim 'halves-compleat'; did you mean 'halves-complete'?",
    ),
    "another misconception": (
        "- runs: {tiny_memory.halves: tiny_memory.whole}",
        "- claims: {copies-save-memory: copies-saves-memory}",
        "no misconception 'copies-saves-memory'; did you mean 'copies-save-memory'?",
    ),
    "a run that nothing reads": (
        MAPPED, "{tiny_memory.whole: tiny_memory.halves}", "reads nothing of 'tiny_memory.whole'",
    ),
    "a spelled number of ranks": (
        "activations on top", "activations of two ranks", "'two' stands in why:",
    ),
    "nothing that a reader sees": (
        "trains on {{ tiny_memory.halves.world_size }} ranks", "trains on ranks",
        "reads like the question itself",
    ),
    "a run without that value": (MAPPED, "{tiny_memory.halves: tiny_training.single}", ""),
    "a number that an author typed": (
        "- runs: {tiny_memory.halves: tiny_memory.whole}",
        "- words: {trains on: trains for 7 steps on}", "7",
    ),
    "a misspelled path": (MAPPED, "{halves: tiny_memory.whole}", "must match pattern"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "says"), REFUSED.values(), ids=REFUSED)
def test_a_variant_without_one_answer_of_its_own_is_a_mistake(copy, old, new, says):
    copy.edit(TRY, old, new)
    try:
        found = [str(one) for one in content_checks.check(Evidence(copy.load()))]
    except Exception as errors:  # noqa: BLE001 - what cannot be read is said when it is read
        found = [str(errors)]
    assert [one for one in found if "quiz-try.yml" in one and says in one], found


def test_a_key_that_stays_with_the_run_that_is_replaced_is_a_mistake(copy):
    copy.edit(
        "topics/averaging/quiz.yml",
        "  - id: is-it-faster\n",
        "  - id: is-it-faster\n"
        "    variants: [{runs: {tiny_training.single: tiny_training.drifting}}]\n",
    )
    found = [str(one) for one in content_checks.check(Evidence(copy.load()))]
    assert [one for one in found if "'averaging-is-slower', which decides an option" in one], found


def test_each_variant_of_this_book_has_one_answer_on_each_machine():
    machines = list(books.load(ROOT / "content").machines)
    assert len(machines) > 1
    for machine in machines:
        evidence = Evidence(books.load(ROOT / "content", machine=machine))
        items = [item for topic in evidence.book.topics for item in topic.items.values()]
        assert sum(bool(variants_of(item, evidence)) for item in items) >= 5
        for item in items:
            if key_of(item, evidence).is_open:  # here the whole section is the reference's
                continue
            told = dict(answerable(item, evidence))
            for number, _ in enumerate(variants_of(item, evidence), 1):
                assert number in told or _is_skipped(item, number, evidence), (machine, item.id)


def _is_skipped(item, number, evidence):
    """Whether the machine has not run what a variant of an author reads; then no one is asked."""
    runs = item.variants[number - 1].runs.values() if item.variants else ()
    return any(evidence.book.run(run).status == "skipped" for run in runs)


def _peak_of_a_rank(evidence, **variant):
    return _item(evidence).model_copy(
        update={
            "stem": "What does {{ rank(0) }} of the halves peak at?",
            "answer": "tiny_memory.halves.ranks[0].memory.peak_bytes",
            "variants": [Variant.model_validate(variant)],
        }
    )


def test_a_variant_may_ask_of_another_rank(evidence):
    item = _peak_of_a_rank(evidence, ranks={0: 1})
    (variant,) = variants_of(item, evidence)
    assert evidence.plain(variant.stem) == "What does rank 1 of the halves peak at?"
    assert variant.answer == "tiny_memory.halves.ranks[1].memory.peak_bytes"
    assert list(mistakes(item, evidence)) == []


def test_a_variant_may_replace_the_words_that_would_be_untrue(evidence):
    runs = {"tiny_memory.halves": "tiny_memory.whole"}
    item = _peak_of_a_rank(evidence, runs=runs, words={"of the halves": "alone"})
    (variant,) = variants_of(item, evidence)
    assert evidence.plain(variant.stem) == "What does rank 0 alone peak at?"
    assert variant.answer == "tiny_memory.whole.ranks[0].memory.peak_bytes"


def test_what_a_variant_replaces_stands_in_the_item(evidence):
    item = _peak_of_a_rank(evidence, ranks={0: 1, 7: 8}, words={"quarters": "halves"})
    assert [message for _, message in mistakes(item, evidence)] == [
        "the question has nothing to replace for 7 of ranks:",
        "the question has nothing to replace for 'quarters' of words:",
    ]


def test_a_variant_whose_texts_read_what_its_runs_lack_is_a_mistake(evidence):
    item = _peak_of_a_rank(evidence, ranks={0: 1}).model_copy(
        update={"why": "It is {{ tiny_memory.halves.ranks[0].memory.nothing }}."}
    )
    ((_, message),) = mistakes(item, evidence)
    assert "nothing" in message


def test_answers_to_a_variant_are_no_answers_to_the_item(evidence):
    item = _item(evidence)
    attempts = [
        {"at": 1, "answer": 5, "is_right": False},
        {"at": 2, "answer": 6, "is_right": True, "variant": 1},
    ]
    export = {"proofbook": 1, "items": {item.id: {"digest": "ab", "attempts": attempts}}}
    found = report({item.id: item}, {item.id: "ab"}, [Export.model_validate(export)])
    assert found.num_unfit == 0
    assert found.items[0].right == (0, 1)
