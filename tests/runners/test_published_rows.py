"""Published rates and layouts: against what their sources state of them, and what follows."""

import csv

import pytest

from proofbook.companions.planner.answers import closed_form, order, published_rows
from proofbook.companions.planner.answers.architecture import Architecture, model_presets
from proofbook.companions.planner.answers.law_of_time import Cluster
from proofbook.companions.planner.answers.published import ORDER, is_stale
from proofbook.companions.planner.answers.published_order import searches
from proofbook.companions.planner.answers.published_rows import RATES, rows
from proofbook.companions.planner.answers.question import (
    PlanError,
    PlannedModel,
    Question,
    TrainingSettings,
    strategy_of,
)
from proofbook.companions.planner.answers.search import strategies
from proofbook.runners.traces.files import read


def test_the_committed_file_is_what_the_rows_give_today():
    committed = read(ORDER.path)
    assert committed.runs == ORDER.runs()
    assert not is_stale(committed)
    assert committed.runs["all"].settings["known_to"] == order.KNOWN_TO  # as the command says


def row_of(group, **fields):
    (found,) = (
        row
        for row in rows(RATES)
        if row.group == group and all(getattr(row, name) == one for name, one in fields.items())
    )
    return found


def model_flops(row):
    """Six for each weight of a product and token, and for each causal score; nothing again."""
    shape = row.architecture
    tables = shape.embedding_parameters * (not shape.has_tied_embeddings)
    tables += shape.context_length * shape.hidden_size * (shape.positions == "learned")
    scores = shape.num_layers * shape.num_heads * shape.head_size * row.sequence
    each = 6 * (shape.active_parameters - tables + scores)
    return each * row.global_batch * row.sequence


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
    whole = model_flops(row) + square_of_scores(row)
    assert whole / (row.seconds * row.devices * row.device.flops) == pytest.approx(mfu, rel=0.01)


@pytest.mark.parametrize("name", [name for name, of in searches().items() if of[0].mfu])
def test_our_operations_are_those_of_a_searchs_published_mfu(name):
    """So the batch, the vocabulary and the widths, which no table states, are those that ran."""
    won = searches()[name][0]
    assert won.seconds == min(row.seconds for row in searches()[name])
    # The published MFU counts the embedding like the logits; looking a token up is no product.
    embedding = 6 * won.global_batch * won.sequence * won.architecture.embedding_parameters
    whole = model_flops(won) + square_of_scores(won) + embedding
    published = won.mfu * won.seconds * won.devices * won.device.flops
    assert whole == pytest.approx(published, rel=0.005)


def test_a_rate_is_what_its_source_states():
    """By parameters, by operations of a mixture, and by tokens a second of each device."""
    row = row_of("GPT 1T on 3072 A100")
    tokens, parameters = row.global_batch * row.sequence, row.architecture.num_parameters
    # Equation 4 of Narayanan et al.: 8 × tokens × parameters / (devices × rate).
    assert row.seconds == pytest.approx(8 * tokens * parameters / (3072 * 163e12), rel=0.03)
    row = row_of("Qwen3_235B_a22B on 256 GB200")
    rate = model_flops(row) / (row.seconds * row.devices)
    assert rate == pytest.approx(728e12, rel=0.01)
    row = next(row for row in rows(RATES) if row.group == "1.34B on 8")
    assert row.seconds == pytest.approx(256 * 4096 / 8 / 39273)


def test_no_published_step_took_less_than_its_bound():
    ran = [row for row in rows(RATES) if row.seconds]
    assert len(ran) > 1000
    for row in ran:
        bound = closed_form.answer(row.question).bounds(row.cluster).at_least
        assert bound <= row.seconds, row.id


MODELS = {
    "LLAMA3_8B": "llama-8b", "LLAMA3_70B": "llama-70b", "LLAMA3.1_405B": "llama-405b",
    "DeepSeekV3": "deepseek-v3",
    "Qwen3_30B_a3B": published_rows.read(RATES)["models"]["Qwen3_235B_a22B"] | {
        "num_layers": 48, "hidden_size": 2048, "num_heads": 32, "ffn_size": 768},
}  # fmt: skip


def _shape(model):
    known = MODELS.get(model) or published_rows.read(RATES)["models"].get(model)
    if isinstance(known, str):
        return model_presets()[known].architecture
    return known and Architecture.model_validate(known)


def test_every_layout_of_a_published_recipe_is_asked_and_searched():
    """Of all models but two whose sizes are not known; FP8 has the states of bf16."""
    path = published_rows.PLANNER / "published_megatron_bridge.csv"
    with path.open(encoding="utf-8", newline="") as file:
        every = [*csv.DictReader(file)]
    recipes = [row for row in every if _shape(row["model"])]
    left = {row["model"] for row in every if row not in recipes}
    assert left == {"DeepSeekV4 Flash", "Nemotron_3_Ultra"}
    for row in recipes:
        shape, devices = _shape(row["model"]), int(row["devices"])
        sizes = {name: int(row[name] or 1) for name in ("tp", "pp", "cp", "vp", "ep")}
        tensor, stages, context, chunks, expert = sizes.values()
        rest = devices // (tensor * stages * context)
        schedule = f"interleaved.{stages}.{chunks}" if chunks > 1 else f"1f1b.{stages}"
        data = f"fsdp.{rest}" if int(row["fsdp_shard_devices"] or 0) else f"zero1.{rest}"
        name = "+".join(filter(None, [
            schedule * (stages > 1), data * (rest * context > 1), f"cp.{context}" * (context > 1),
            f"tp-sp.{tensor}" * (tensor > 1), f"ep.{expert}" * (expert > 1),
        ]))  # fmt: skip
        settings = TrainingSettings(
            sequence=int(row["sequence_tokens"]),
            microbatch=int(row["micro_batch_sequences"]),
            global_batch=int(row["global_batch_sequences"]),
        )
        model = PlannedModel(name=row["model"], architecture=shape)
        strategy = strategy_of(name, devices)
        asked = Question(model=model, training=settings, strategy=strategy)
        asked.check()
        assert closed_form.answer(asked).ranks[0].reserved_bytes > 0
        cluster = Cluster(max(1, devices // 8), min(8, devices), 1e15, 1e12, 1e11)
        searched = strategies(cluster, shape, settings.sequence)
        plain = strategy.model_copy(update={"name": ""})
        usual = [one.model_copy(update={"name": ""}) for one in searched]
        assert plain in usual, (row["row_id"], name)


def test_a_row_that_cannot_be_read_is_one_line_with_its_place(tmp_path, monkeypatch):
    for path in published_rows.PLANNER.glob("published_*"):
        text = path.read_text(encoding="utf-8")
        (tmp_path / path.name).write_text(text.replace(",39273.0,", ",fast,", 1), encoding="utf-8")
    monkeypatch.setattr(published_rows, "PLANNER", tmp_path)
    with pytest.raises(PlanError, match=r"^published_layouts\.csv:2: .*'fast'.*$"):
        rows.__wrapped__(RATES)
