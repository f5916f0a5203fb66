"""Published rates and layouts: against what their sources state of them, and what follows."""

import pytest

from proofbook.runners.planner.answers import closed_form, order, published_rows, rates
from proofbook.runners.planner.answers.architecture import model_presets
from proofbook.runners.planner.answers.law_of_time import Cluster
from proofbook.runners.planner.answers.published import ORDER, STEPS, is_stale
from proofbook.runners.planner.answers.published_order import searches
from proofbook.runners.planner.answers.published_rows import RATES, rows
from proofbook.runners.planner.answers.question import (
    PlanError,
    PlannedModel,
    Question,
    TrainingSettings,
    strategy_of,
)
from proofbook.runners.traces.files import read

H100 = Cluster(1, 8, 989e12, 450e9, 400e9)


@pytest.mark.parametrize("comparison", [ORDER, STEPS], ids=lambda one: one.experiment)
def test_the_committed_file_is_what_the_rows_give_today(comparison):
    committed = read(comparison.path)
    assert committed.runs == comparison.runs()
    assert not is_stale(committed)
    if comparison is ORDER:  # as the command says
        assert committed.runs["all"].settings["known_to"] == order.KNOWN_TO


def row_of(group, **fields):
    (found,) = (
        row
        for row in rows(RATES)
        if row.group == group and all(getattr(row, name) == one for name, one in fields.items())
    )
    return found


def square_of_scores(row):
    """Operations of attention above the diagonal, which the sources count and no kernel does."""
    shape = row.architecture
    each = 6 * shape.num_layers * shape.hidden_size * row.sequence
    return each * row.global_batch * row.sequence


@pytest.mark.parametrize(
    ("group", "fields", "parameters", "mfu"),  # as the benchmark of MPT prints them beside the rate
    [
        ("MPT 13B on 8 A100", {"sequence": 4096}, 12_864_440_320, 0.5762),
        ("MPT 7B on 8 A100", {"checkpointing": "none"}, 6_658_859_008, 0.6423),
        ("MPT 70B on 128 A100 of 40 GB", {}, 64_862_437_376, 0.4891),
    ],
)
def test_a_rate_of_mpt_is_the_utilization_that_its_source_gives(group, fields, parameters, mfu):
    row = row_of(group, **fields)
    assert row.architecture.num_parameters == pytest.approx(parameters, rel=0.001)
    whole = closed_form.model_flops(row.question) + square_of_scores(row)
    assert whole / (row.seconds * row.devices * row.device.flops) == pytest.approx(mfu, rel=0.01)


@pytest.mark.parametrize("name", [name for name, of in searches().items() if of[0].mfu])
def test_our_operations_are_those_of_a_searchs_published_mfu(name):
    """So the batch, the vocabulary and the widths, which no table states, are those that ran."""
    won = searches()[name][0]
    assert won.seconds == min(row.seconds for row in searches()[name])
    # The published MFU counts the embedding like the logits; looking a token up is no product.
    embedding = 6 * won.global_batch * won.sequence * won.architecture.embedding_parameters
    whole = closed_form.model_flops(won.question) + square_of_scores(won) + embedding
    published = won.mfu * won.seconds * won.devices * won.device.flops
    assert whole == pytest.approx(published, rel=0.005)


def test_a_rate_is_what_its_source_states():
    """By parameters, by operations of a mixture, and by tokens a second of each device."""
    row = row_of("GPT 1T on 3072 A100")
    tokens, parameters = row.global_batch * row.sequence, row.architecture.num_parameters
    # Equation 4 of Narayanan et al.: 8 × tokens × parameters / (devices × rate).
    assert row.seconds == pytest.approx(8 * tokens * parameters / (3072 * 163e12), rel=0.03)
    row = row_of("Qwen3_235B_a22B on 256 GB200")
    assert rates.share(row) * row.device.flops == pytest.approx(728e12, rel=0.01)
    row = next(row for row in rows(RATES) if row.group == "1.34B on 8")
    assert row.seconds == pytest.approx(256 * 4096 / 8 / 39273)


def test_no_published_step_took_less_than_its_bound():
    ran = [row for row in rows(RATES) if row.seconds]
    assert len(ran) > 1000
    for row in ran:
        bound = closed_form.answer(row.question).bounds(row.cluster).at_least
        assert bound <= row.seconds, row.id


def question(name, strategy="fsdp", **training):
    model = PlannedModel(name=name, architecture=model_presets()[name].architecture)
    asked = {"sequence": 4096, "global_batch": 8, **training}
    return Question(
        model=model, training=TrainingSettings(**asked), strategy=strategy_of(strategy, 8)
    )


def test_a_range_is_of_published_clusters_like_it_and_there_is_none_where_few_were():
    """Nine clusters of H100 have models of 4 to 16 billion parameters."""
    asked = question("llama-8b")
    shortest, longest, num = rates.range_of(closed_form.answer(asked), H100)
    assert num == 9
    at_peak = closed_form.model_flops(asked) / 8 / H100.flops
    assert at_peak < shortest < longest
    for other, cluster in (
        (question("gpt2-124m", sequence=1024), H100),
        (asked, Cluster(1, 8, 100e12, 450e9, 400e9)),  # of another device
        (question("mixtral-8x7b"), H100),
        (question("llama-8b", precision="fp32"), H100),
        (asked, Cluster(8, 1, 989e12, 1e9, 1e9)),  # whose links take longer
    ):
        assert rates.range_of(closed_form.answer(other), cluster) is None


def test_a_row_that_cannot_be_read_is_one_line_with_its_place(tmp_path, monkeypatch):
    for path in published_rows.PLANNER.glob("published_*"):
        text = path.read_text(encoding="utf-8")
        (tmp_path / path.name).write_text(text.replace(",39273.0,", ",fast,", 1), encoding="utf-8")
    monkeypatch.setattr(published_rows, "PLANNER", tmp_path)
    with pytest.raises(PlanError, match=r"^published_layouts\.csv:2: .*'fast'.*$"):
        rows.__wrapped__(RATES)
