"""Variants that no author wrote: the question on the other runs of the laws that it names."""

from __future__ import annotations

import pytest

from generator.content import book as books
from generator.content.quiz import Choice, Number
from generator.evidence.evaluation import Evidence
from generator.items.keys import key_of
from generator.items.siblings import mappings
from generator.items.variants import variants_of
from tests.conftest import ROOT

SPLIT, WHOLE = "growth.split_batch_{}", "growth.single_batch_{}"
LAW = "mg-grow-root-bytes@growth.split_batch_1000"


@pytest.fixture(scope="module")
def real():
    return Evidence(books.load(ROOT / "content", machine="reference-cpu-2c"))


def _item(stem, run="growth.split_batch_1000", claims=(LAW,), **more):
    return Number.model_validate({
        "id": "a-peak", "kind": "number", "stem": stem, "why": "It is what the root holds.",
        "answer": f"{run}.ranks[0].memory.peak_bytes", "tolerance": {"relative": 0.05},
        "claims": [*claims], **more,
    })  # fmt: skip


def test_all_runs_of_an_item_change_in_the_same_way(real):
    item = _item(
        "{{ growth.single_batch_1000.settings.batch_size }} samples take"
        " {{ growth.single_batch_1000.ranks[0].memory.peak_bytes }} on one device."
    )
    batches = (250, 500, 2000)
    assert mappings(item, real) == [
        {SPLIT.format(1000): SPLIT.format(num), WHOLE.format(1000): WHOLE.format(num)}
        for num in batches
    ]
    for variant, num in zip(variants_of(item, real), batches, strict=True):
        peaks = [
            real.book.run(run.format(num)).ranks[0].memory.peak_bytes for run in (SPLIT, WHOLE)
        ]
        assert key_of(variant, real).value.number == peaks[0]
        assert real.plain(variant.stem).startswith(f"{num:,} samples")
        assert variant.claims == [f"mg-grow-root-bytes@{SPLIT.format(num)}"]


SHARDED = {"run": "sharding.fsdp_4", "claims": ["sh-fsdp-peak@sharding.fsdp_4"]}


def test_further_evidence_stays_behind_with_its_run(real):
    stem = "{{ sharding.fsdp_4.world_size }} ranks?"
    stale = ["sh-same-loss@sharding.fsdp_4", "lm-adam-moments"]
    item = _item(stem, SHARDED["run"], [*SHARDED["claims"], *stale])
    (variant,) = variants_of(item, real)
    assert variant.claims == ["sh-fsdp-peak@sharding.fsdp_2", "lm-adam-moments"]


WIDE = {"run": "large_model.wide_stages", "claims": ["lm-stages-peak@large_model.wide_stages"]}
TO_ADAM = [{"large_model.wide_stages": "large_model.wide_adam_stages"}]
ASKED = {
    "no law over several runs": (
        {"stem": "{{ growth.split_batch_1000.settings.batch_size }}?", "claims": []}, [],
    ),
    "a comparison that holds the other run already": (
        {"stem": "{{ growth.split_batch_250.settings.batch_size }},"
         " {{ growth.split_batch_500.settings.batch_size }},"
         " {{ growth.split_batch_2000.settings.batch_size }}?"}, [],
    ),
    "a word that differs and is not printed": (
        {"stem": "{{ large_model.wide_stages.model.bytes }}?", **WIDE}, [],
    ),
    "a word that differs and is printed": (
        {"stem": "With {{ large_model.wide_stages.settings.optimizer }}, over"
         " {{ large_model.wide_stages.settings.num_epochs }} epochs?", **WIDE}, TO_ADAM,
    ),
    "a run that ends otherwise": (
        {"stem": "{{ large_model.wide_stages_budget.settings.model }}?",
         "run": "large_model.wide_stages_budget",
         "claims": ["lm-out-of-memory-in-wrap@large_model.wide_ddp_budget"]}, [],
    ),
    "one batch that becomes several microbatches": (
        {"stem": "{{ pipeline_schedules.paced_one_batch.world_size }} stages, a batch in flight?",
         "run": "pipeline_schedules.paced_one_batch",
         "claims": ["ps-idle-share@pipeline_schedules.paced_one_batch"]}, [],
    ),
    "a number that is nothing on one side": (
        {"stem": "{{ replicas.unequal.settings.norm }}?", "run": "replicas.unequal",
         "claims": ["ddp-departs-from-batch@replicas.unequal"]}, [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("written", "expected"), ASKED.values(), ids=ASKED)
def test_a_variant_is_made_only_where_no_word_becomes_untrue(real, written, expected):
    assert mappings(_item(**written), real) == expected


def test_options_in_words_are_asked_elsewhere_only_where_an_author_says_so(real):
    written = _item("{{ growth.split_batch_1000.settings.batch_size }} samples?")
    options = [{"text": text, "why": "So the law says."} for text in ("More.", "Fewer.")]
    item = Choice.model_validate({
        "id": "a-peak", "stem": written.stem, "options": options, "claims": written.claims,
    })  # fmt: skip
    assert len(mappings(written, real)) == 3
    assert mappings(item, real) == []


def test_a_number_that_the_text_spells_makes_no_variant(real):
    printed = "over {{ large_batch.split.world_size }} ranks"
    more = {"run": "large_batch.split", "claims": ["mg-large-peak@large_batch.split"]}
    assert len(variants_of(_item(f"A batch {printed}?", **more), real)) == 1
    assert variants_of(_item(f"A batch {printed}, on two devices?", **more), real) == []
