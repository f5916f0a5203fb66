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
        {"stem": "{{ ddp.ddp.settings.batch_size }}?", "run": "ddp.ddp", "claims": []}, [],
    ),
    "a law that holds of the run which the answer reads": (
        {"stem": "{{ large_batch.split.world_size }} ranks?", "run": "large_batch.split",
         "claims": []}, [{"large_batch.split": "large_batch.split_four"}],
    ),
    "a word by which only one of the runs is called": (
        {"stem": "{{ growth.ddp_width_2000.world_size }} ranks, at this width?",
         "run": "growth.ddp_width_2000", "claims": []}, [],
    ),
    "two runs that would become one": (
        {"stem": "{{ pipeline_schedules.real_1f1b.settings.num_microbatches }},"
         " {{ pipeline_schedules.real_1f1b_16.settings.num_microbatches }}?",
         "run": "pipeline_schedules.real_1f1b_16",
         "claims": ["ps-1f1b-in-flight@pipeline_schedules.real_1f1b_16"]}, [],
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


GPIPE, ONE_F = "pipeline_schedules.paced_gpipe", "pipeline_schedules.paced_1f1b"
BUBBLE = {"right_if": {"claim": f"ps-idle-share@{ONE_F}"}}
OPTIONS = {
    "laws decide them": ({"text": "It stays.", **BUBBLE}, "It falls.", True),
    "nothing decides them": ({"text": "It stays."}, "It falls.", False),
    "they say how much": ({"text": "It stays.", **BUBBLE}, "It falls to almost nothing.", False),
    "another run decides them": (
        {"text": "It stays.", "right_if": {"claim": "ddp-equals-single"}}, "It falls.", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "is_asked"), OPTIONS.values(), ids=OPTIONS)
def test_options_in_words_are_asked_elsewhere_only_where_laws_decide_them(
    real, right, wrong, is_asked
):
    options = [{"why": "So the law says.", **right}, {"text": wrong, "why": "So the law says."}]
    item = Choice.model_validate({
        "id": "a-choice", "options": options,
        "stem": f"{{{{ {GPIPE}.settings.num_microbatches }}}} microbatches. And under another one?",
        "claims": [f"ps-idle-share@{GPIPE}"],
    })  # fmt: skip
    moved = {GPIPE: f"{GPIPE}_two_ranks", ONE_F: f"{ONE_F}_two_ranks"}
    assert (moved in mappings(item, real)) == is_asked
    if is_asked:
        keys = [key_of(one, real).right for one in (item, *variants_of(item, real))]
        assert set(keys) == {(0,)}
        assert len(keys) > 1


def test_a_number_that_the_text_spells_makes_no_variant(real):
    printed = "over {{ large_batch.split.world_size }} ranks"
    more = {"run": "large_batch.split", "claims": ["mg-large-peak@large_batch.split"]}
    assert len(variants_of(_item(f"A batch {printed}?", **more), real)) == 1
    assert variants_of(_item(f"A batch {printed}, in two rooms?", **more), real) == []
    assert variants_of(_item(f"A batch {printed}, `2 M` on each?", **more), real) == []


def test_a_variant_prints_its_own_ranks_where_the_text_spells_them(real):
    more = {"run": "large_batch.split", "claims": ["mg-large-peak@large_batch.split"]}
    (variant,) = variants_of(
        _item("Two ranks hold one part in two; in two directions?", **more), real
    )
    assert real.plain(variant.stem) == "4 ranks hold one part in 4; in two directions?"


def test_a_slip_that_comes_to_another_one_on_the_runs_of_a_variant_is_left_out(real):
    slips = [
        {"name": name, "gives": gives, "why": "It is not.", "misconception": "ddp-shares-memory"}
        for name, gives in (
            ("one", "2 * large_batch.split.settings.model_bytes"),
            ("other", "large_batch.split.world_size * large_batch.split.settings.model_bytes / 2"),
        )
    ]
    stem = "{{ large_batch.split.world_size }} ranks?"
    more = {"run": "large_batch.split", "claims": ["mg-large-peak@large_batch.split"]}
    item = _item(stem, **more, slips=slips)
    assert len(item.slips) == 2
    (variant,) = variants_of(item, real)
    assert [slip.name for slip in variant.slips] == ["one"]
