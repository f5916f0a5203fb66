"""The committed grid of plans: how files are made, confirmed and refused, and what they hold."""

import pytest

from proofbook.runners.__main__ import main
from proofbook.runners.planner.answers import plan_grid, published
from proofbook.runners.planner.answers.architecture import model_presets
from proofbook.runners.planner.answers.law_of_time import Cluster
from proofbook.runners.planner.answers.plan_grid import GridState, as_trace, read_grid
from proofbook.runners.planner.answers.question import (
    PlannedModel,
    Question,
    TrainingSettings,
    strategy_of,
)
from proofbook.runners.planner.answers.search import shortlist
from proofbook.runners.planner.simulated import grid
from proofbook.runners.simulate import processes
from proofbook.runners.system.book import ROOT
from proofbook.runners.traces.digest import covered_files
from tests.runners.questions import LLAMA, changed

TINY = changed(LLAMA, hidden_size=32, num_kv_heads=2, ffn_size=64, vocabulary=64, context_length=16)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A grid of a tiny model, made into a folder of its own; returns how to make it."""
    preset = model_presets()["llama-1b"].model_copy(update={"id": "tiny", "architecture": TINY})
    monkeypatch.setattr(grid, "model_presets", lambda: {"tiny": preset})
    monkeypatch.setattr(grid, "GRIDS", {"tiny": grid.GridSpec(1, 16, ({"devices": 4},))})
    monkeypatch.setattr(grid, "STRATEGIES", {4: ("single", "fsdp", "tp-sp")})
    monkeypatch.setattr(grid, "DEVICES", ())
    monkeypatch.setattr(grid, "PLANS", tmp_path / "plans")
    simulated = []
    start = processes._started
    monkeypatch.setattr(processes, "_started", lambda one: simulated.append(one) or start(one))

    def checked(*, is_writing):
        simulated.clear()
        return grid.check("tiny", is_writing=is_writing), len(simulated)

    path = tmp_path / "plans" / "tiny.json"
    return checked, path


def test_a_file_holds_every_row_and_other_code_confirms_it_or_makes_it_anew(tiny, monkeypatch):
    checked, path = tiny
    assert checked(is_writing=False) == ("differs; --write makes it anew", 0)
    assert checked(is_writing=True) == ("written", 4)
    found = read_grid(path)
    assert [(row.strategy, row.state.checkpointing) for row in found.rows] == [
        ("single", "none"), ("fsdp", "none"), ("single", "all"), ("fsdp", "all"),
    ]  # fmt: skip
    plain, checkpointed = found.rows[0], found.rows[2]
    assert checkpointed.ranks[0].peak_bytes < plain.ranks[0].peak_bytes
    assert checkpointed.ranks[0].flops > plain.ranks[0].flops
    assert checked(is_writing=False) == (grid.SAME, len(found.rows[:: grid.EACH]))

    monkeypatch.setattr(plan_grid, "engine_digest", lambda: "another")
    assert plan_grid.code_digest("plan_tiny") != found.code
    assert checked(is_writing=False) == ("differs; --write makes it anew", 1)
    assert checked(is_writing=True) == (grid.SAME, 1)
    again = read_grid(path)
    assert (again.code, again.rows) == (plan_grid.code_digest("plan_tiny"), found.rows)

    rank = found.rows[0].ranks[0]
    other = rank.model_copy(update={"peak_bytes": rank.peak_bytes + 1})
    rows = [found.rows[0].model_copy(update={"ranks": [other]}), *found.rows[1:]]
    grid.write(path, found.model_copy(update={"rows": rows}))
    assert checked(is_writing=False) == ("differs; --write makes it anew", 1)
    assert read_grid(path).rows == rows
    assert checked(is_writing=True) == ("written", 5)
    assert [row.ranks for row in read_grid(path).rows] == [row.ranks for row in found.rows]
    monkeypatch.setattr(grid, "STRATEGIES", {4: ("single", "fsdp", "zero1")})
    assert checked(is_writing=False) == ("differs; --write makes it anew", 0)


def test_another_engine_or_another_architecture_makes_a_grid_stale(monkeypatch):
    names = {path.name for path in covered_files(ROOT / plan_grid._ENTRY)}
    assert {"one_rank.py", "transformer.py", "stand_ins.py", "steps.py"} <= names
    assert not {"command.py", "answer.py", "law_of_time.py", "cache.py", "grid.py"} & names
    before = plan_grid.code_digest("plan_llama_8b")
    assert before != plan_grid.code_digest("plan_llama_70b")
    monkeypatch.setattr(plan_grid, "engine_digest", lambda: "another")
    assert plan_grid.code_digest("plan_llama_8b") != before


# --- what is committed


COMMITTED = sorted(grid.PLANS.glob("*.json"))


@pytest.fixture(params=COMMITTED, ids=lambda path: path.stem)
def committed(request):
    return read_grid(request.param)


def rows_by(found):
    return {(row.strategy, row.state): row for row in found.rows}


def test_a_file_is_fresh_and_has_every_row_that_is_asked_for(committed):
    trace = as_trace(committed)
    assert not published.is_stale(trace)
    asked = dict(grid.questions(model_presets()[committed.preset]))
    assert rows_by(committed).keys() == asked.keys()
    rows = plan_grid.named_rows(committed)
    assert len(rows) == len(committed.rows)
    for name, row in rows.items():
        assert [one.rank for one in trace.runs[name].ranks] == [one.rank for one in row.ranks]


@pytest.mark.parametrize("memory_and_rates", grid.DEVICES)
def test_what_the_rule_puts_first_is_in_every_committed_grid(committed, memory_and_rates):
    memory, *rates = memory_and_rates
    rows, preset = rows_by(committed), model_presets()[committed.preset]
    model = PlannedModel(name=committed.preset, architecture=preset.architecture)
    for fields in grid.GRIDS[committed.preset].states:
        usual = {"sequence": committed.base_sequence, "microbatch": committed.microbatch}
        state = GridState.model_validate({**usual, **fields})
        training = TrainingSettings(
            sequence=state.sequence,
            microbatch=state.microbatch,
            global_batch=committed.microbatch * state.devices,
            optimizer=state.optimizer,
        )
        question = Question(model=model, training=training, strategy=strategy_of("single", 1))
        cluster = Cluster(1, 8, *rates).with_devices(state.devices)
        listed, _ = shortlist(question, cluster, memory)
        first = next((one for one in listed if one.verdict == "fits"), None)
        if first is not None:
            how = first.answer.question.training
            settings = {"microbatch": how.microbatch, "checkpointing": how.checkpointing}
            assert (first.strategy, state.model_copy(update=settings)) in rows


def test_the_operations_of_a_token_are_six_for_each_parameter_and_those_of_attention(committed):
    """Products: 2 forward and 4 backward; attention once, below the diagonal."""
    shape = committed.architecture
    if shape["num_experts"] > 1:
        pytest.skip("a token passes through some experts only")
    embedding = shape["vocabulary"] * shape["hidden_size"]
    positions = shape["context_length"] * shape["hidden_size"]
    looked_up = (0 if shape["has_tied_embeddings"] else embedding) + (
        positions if shape["positions"] == "learned" else 0
    )
    for row in committed.rows:
        if row.strategy == "fsdp" and row.state.checkpointing == "none":
            tokens = committed.microbatch * row.state.sequence
            products = 6 * (committed.num_parameters - looked_up) * tokens
            attention = 2 * 3.5 * shape["num_layers"] * shape["hidden_size"] * row.state.sequence
            closed_form = products + attention * tokens
            assert row.ranks[0].flops == pytest.approx(closed_form, rel=0.03), row.state


def test_ddp_sums_every_gradient_once_and_reserves_at_least_what_it_allocates(committed):
    for row in committed.rows:
        for rank in row.ranks:
            assert rank.peak_bytes <= rank.allocated_bytes <= rank.reserved_bytes
            assert sum(rank.at_peak.model_dump().values()) == rank.peak_bytes
        if row.strategy in ("ddp", "ddp-view"):
            width = 2 if row.state.precision == "bf16-mixed" else 4
            # Beside it DDP broadcasts buffers: the angles of rotary positions.
            (call,) = (one for one in row.ranks[0].calls if one.operation == "all_reduce")
            assert call.axis == "data"
            assert call.bytes == width * committed.num_parameters


def test_a_committed_row_comes_out_the_same_today(capsys):
    rows = plan_grid.named_rows(read_grid(grid.PLANS / "gpt2-124m.json"))
    name = next(name for name in rows if name.startswith("fsdp"))
    fields = ("memory.peak_bytes", "measures.reserved_bytes", "measures.sent_bytes")
    assert main(["reproduce", *(f"plan_gpt2_124m.{name}.ranks[0].{one}" for one in fields)]) == 0
    assert capsys.readouterr().out.endswith("3 of 3 are the same\n")
